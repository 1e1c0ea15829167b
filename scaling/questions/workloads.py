"""What kernels compute and move, as formulas over their sizes.

    matmul       m, n, k, or b, m, n, k      [m, k] x [k, n], b times; the weights are k x n
    attention    B, N, T, S, H[, K]          N heads over T queries and S keys of K key heads
    elementwise  E[, i[, f]]                 E results of i inputs, f operations each
    reduce       E                           a sum of E elements
    embedding    T, D, V                     rows of width D for T tokens, of a table of V rows
    read, copy   V                           bytes; a copy also writes them
    work         F[, Q]                      any FLOPs of matrix products and bytes

Sizes have the guide's letters; x, w, y, z are bytes per value of activations, weights, results,
keys and values.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scaling.meshes.errors import InputError, nearest
from scaling.meshes.formula import evaluate, symbols
from scaling.models.accounting.matrices import NUMBER_BYTES, STORED_BYTES
from scaling.program.ir import KernelKind
from scaling.program.ops import BACKWARD_PRODUCTS, FORWARD_PRODUCTS
from scaling.questions.answer import Input

Sizes = Mapping[str, float]


@dataclass(frozen=True)
class Formats:
    """Number formats by what they are of; None: as the activations."""

    activations: str = "bf16"
    weights: str | None = None
    results: str | None = None
    keys_and_values: str | None = None
    products: str | None = None  # the format whose peak rate counts

    def bytes_of(self, of: str | None) -> float:
        """Return the bytes of a value; InputError names the nearest format."""
        name = of or self.activations
        if name not in STORED_BYTES:
            raise InputError(f"format {name!r} is not known; {nearest(name, STORED_BYTES)}")
        return STORED_BYTES[name]


@dataclass(frozen=True)
class Attention:
    """Which attention: causal scores are half of them, a backward pass has five products."""

    causal: bool = False
    backward: bool = False


@dataclass(frozen=True)
class Work:
    """One kernel. Formulas are over `inputs`; an empty one stands for none."""

    kind: str
    inputs: tuple[Input, ...]
    flops: str = ""
    moved: str = ""  # bytes
    far: str = ""  # of these bytes those that may come from elsewhere: weights, a model
    is_vector: bool = False  # its FLOPs are of vector units
    section: str = "roofline: arithmetic intensity"
    engine: KernelKind = "fusion"
    dims: tuple[float, ...] = ()  # as `scaling.program.ir.Kernel` has them
    exponentials: str = ""

    def amount(self, formula: str) -> float:
        """Return the number of one of the formulas, 0 for an empty one."""
        values = {i.symbol: i.value for i in self.inputs}
        return evaluate(formula, values) if formula else 0.0

    def given(self, formula: str) -> tuple[Input, ...]:
        """Return the inputs that a formula has."""
        return tuple(i for i in self.inputs if i.symbol in symbols(formula))


def matmul(sizes: Sizes, formats: Formats) -> Work:
    """Return a product of activations and weights, or `b` of them."""
    given = [_size("b", sizes, "products, each with its own weights")] if "b" in sizes else []
    given += [
        _size("m", sizes, "rows of activations: the batch"),
        _size("n", sizes, "columns of the weights"),
        _size("k", sizes, "contracted"),
        _bytes("x", formats, formats.activations, "activations"),
        _bytes("w", formats, formats.weights, "weights"),
        _bytes("y", formats, formats.results, "results"),
    ]
    times = "b * " if "b" in sizes else ""
    moved = "x * m * k + w * k * n + y * m * n"
    return Work(
        "matmul",
        tuple(given),
        flops=f"2 * {times}m * n * k",
        moved=f"b * ({moved})" if times else moved,
        far=f"{times}w * k * n",
        section="roofline: matrix multiplication",
        engine="matmul",
        dims=(sizes.get("b", 1), sizes["m"], sizes["n"], sizes["k"]),
    )


def attention(sizes: Sizes, formats: Formats, how: Attention) -> Work:
    """Return scores, softmax and average of values, fused: scores never reach the memory.

    Forward it reads q, k, v and writes the result; backward it reads and writes twice as much, and
    makes the scores again (arXiv 2205.14135, algorithm 4).
    """
    B, N, T, S, H = (sizes[name] for name in "BNTSH")
    K = sizes.get("K", N)
    if N % K:
        raise InputError(f"{N:g} heads are not a multiple of {K:g} key heads: N % K must be 0")
    if how.causal and T > S:
        raise InputError(f"{T:g} queries see {S:g} keys: causal attention needs T <= S")
    products = sum(BACKWARD_PRODUCTS if how.backward else FORWARD_PRODUCTS)
    inputs = (
        Input("B", B, "", "sequences"),
        Input("N", N, "", "heads"),
        Input("T", T, "", "queries of a sequence"),
        Input("S", S, "", "keys of a sequence"),
        Input("H", H, "", "head dimension"),
        Input("K", K, "", "key heads"),
        Input("r", products, "", "products: " + ("backward" if how.backward else "forward")),
        Input("a", 2 if how.backward else 1, "", "times that q, k, v and the result are moved"),
        _bytes("x", formats, formats.activations, "activations"),
        _bytes("z", formats, formats.keys_and_values, "keys and values"),
    )
    seen = "T * (S - T / 2)" if how.causal else "T * S"
    return Work(
        "attention",
        inputs,
        flops=f"2 * r * B * N * H * {seen}",
        moved="2 * a * B * H * (x * N * T + z * K * S)",
        far="2 * a * B * H * z * K * S",
        section="transformers: attention",
        engine="attention",
        dims=(B, N, T, S, H),
        exponentials=f"B * N * {seen}",
    )


def elementwise(sizes: Sizes, formats: Formats) -> Work:
    """Return an operation on equal arrays, element by element."""
    inputs = (
        _size("E", sizes, "elements of the result"),
        _size("i", sizes, "arrays that are read", 1),
        _size("f", sizes, "operations per element", 1),
        _bytes("x", formats, formats.activations, "a value"),
    )
    return Work("elementwise", inputs, "f * E", "x * E * (i + 1)", is_vector=True)


def reduction(sizes: Sizes, formats: Formats) -> Work:
    """Return a sum of all elements of an array."""
    inputs = (_size("E", sizes, "elements"), _bytes("x", formats, formats.activations, "a value"))
    return Work("reduce", inputs, "E - 1", "x * (E + 1)", is_vector=True)


def embedding(sizes: Sizes, formats: Formats) -> Work:
    """Return the look-up of a row of the table for every token; no row is read twice."""
    inputs = (
        _size("T", sizes, "tokens"),
        _size("D", sizes, "width of a row"),
        _size("V", sizes, "rows of the table"),
        Input("p", NUMBER_BYTES["int32"], "bytes", "of a token's number"),
        _bytes("w", formats, formats.weights, "the table"),
        _bytes("x", formats, formats.activations, "activations"),
    )
    table = "min(T, V) * D * w"
    return Work("embedding", inputs, moved=f"T * (p + D * x) + {table}", far=table)


def read(sizes: Sizes, formats: Formats) -> Work:
    """Return the reading of bytes, such as the weights of a model."""
    inputs = (Input("V", sizes["V"], "bytes", "read"),)
    return Work("read", inputs, moved="V", far="V", section="tpus: worked problems")


def copy(sizes: Sizes, formats: Formats) -> Work:
    """Return a copy within the memory: read and written."""
    return Work("copy", (Input("V", sizes["V"], "bytes", "copied"),), moved="2 * V", far="V")


def any_work(sizes: Sizes, formats: Formats) -> Work:
    """Return given FLOPs of matrix products and given bytes."""
    flops, moved = Input("F", sizes["F"], "FLOPs"), Input("Q", sizes.get("Q", 0), "bytes")
    has_bytes = moved.value > 0
    inputs = (flops, moved) if has_bytes else (flops,)
    far = "Q" if has_bytes else ""
    return Work("work", inputs, "F", far, far, engine="custom")


@dataclass(frozen=True)
class Kind:
    """How the sizes of a kind are written."""

    sizes: tuple[str, ...]  # all that can be given, in order
    least: int  # how many must be
    make: Callable[..., Work]
    example: str
    bytes: tuple[str, ...] = ()  # sizes that are bytes, "400GB"


KINDS: Mapping[str, Kind] = {
    "matmul": Kind(("m", "n", "k"), 3, matmul, "8192,8192,8192"),
    "attention": Kind(("B", "N", "T", "S", "H", "K"), 5, attention, "1,32,4096,4096,128,8"),
    "elementwise": Kind(("E", "i", "f"), 1, elementwise, "65536,2,1"),
    "reduce": Kind(("E",), 1, reduction, "1e9"),
    "embedding": Kind(("T", "D", "V"), 3, embedding, "4096,8192,128256"),
    "read": Kind(("V",), 1, read, "400GB", ("V",)),
    "copy": Kind(("V",), 1, copy, "64MiB", ("V",)),
    "work": Kind(("F", "Q"), 1, any_work, "1e12,4GB", ("Q",)),
}
OPTIONS: Mapping[str, tuple[str, ...]] = {  # of `scaling kernel` -> kinds that have it
    "weights": ("matmul", "embedding"),
    "output": ("matmul",),
    "kv": ("attention",),
    "compute": ("matmul", "attention", "work"),
    "from": ("matmul", "attention", "embedding", "read", "copy", "work"),
    "causal": ("attention",),
    "backward": ("attention",),
}


def check_options(kind: str, given: Mapping[str, object]) -> None:
    """Raise InputError for an option that is given and that the kind does not have."""
    for name, value in given.items():
        if value and kind not in OPTIONS[name]:
            raise InputError(f"--{name} is of {', '.join(OPTIONS[name])}, not of {kind}")


def work_of(kind: str, sizes: Sizes, formats: Formats, how: Attention | None = None) -> Work:
    """Return the kernel of a kind with these sizes.

    Raises:
        InputError: a format that is not known, or sizes that do not fit together.
    """
    if kind == "attention":
        return attention(sizes, formats, how or Attention())
    return KINDS[kind].make(sizes, formats)


def _size(symbol: str, sizes: Sizes, meaning: str, default: float | None = None) -> Input:
    value = sizes.get(symbol, default)
    assert value is not None
    return Input(symbol, value, "", meaning)


def _bytes(symbol: str, formats: Formats, of: str | None, what: str) -> Input:
    meaning = f"{what}, {of or formats.activations}"
    return Input(symbol, formats.bytes_of(of), "bytes", meaning)
