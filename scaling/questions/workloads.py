"""What kernels compute and move, as formulas over their sizes.

    matmul       m, n, k, or b, m, n, k      [m, k] x [k, n], b times; the weights are k x n
    grouped      g, m, n, k                  the same of g experts, each with m rows on average
    attention    B, N, T, S, H[, K]          N heads over T queries and S keys of K key heads
    elementwise  E[, i[, f]]                 E results of i inputs, f operations each
    reduce       E                           a sum of E elements
    embedding    T, D, V                     rows of width D for T tokens, of a table of V rows
    read, copy   V                           bytes; a copy also writes them
    work         F[, Q]                      any FLOPs of matrix products and bytes

Sizes have the guide's letters; x, w, y, z are bytes per value of activations, weights, results,
keys and values. Sizes may be arrays of them, for as many kernels at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from scaling.meshes.errors import InputError, nearest
from scaling.meshes.formula import evaluate, symbols
from scaling.models.accounting.matrices import NUMBER_BYTES, STORED_BYTES
from scaling.program.ops import BACKWARD_PRODUCTS, FORWARD_PRODUCTS
from scaling.questions.answer import Input

Sizes = Mapping[str, float]


@dataclass(frozen=True)
class KernelFormats:
    """Number formats by what they are of; None: as the activations."""

    activations: str = "bf16"
    weights: str | None = None
    results: str | None = None
    keys_and_values: str | None = None
    products: str | None = None  # the format whose peak rate counts

    def value(self, symbol: str, what: str) -> Input:
        """Return the bytes of a value: x, w, y or z; InputError names the nearest format."""
        stated = {"w": self.weights, "y": self.results, "z": self.keys_and_values}.get(symbol)
        name = stated or self.activations
        if name not in STORED_BYTES:
            raise InputError(f"format {name!r} is not known; {nearest(name, STORED_BYTES)}")
        return Input(symbol, STORED_BYTES[name], "bytes", f"{what}, {name}")


@dataclass(frozen=True)
class KernelWork:
    """One kernel. Formulas are over `inputs`; an empty one stands for none."""

    kind: str
    inputs: tuple[Input, ...]
    flops: str
    moved: str  # bytes
    far: str  # of these bytes those that may come from elsewhere: weights, a model
    scores: str  # of attention, those that a mask leaves
    is_vector: bool  # its FLOPs are of vector units
    section: str

    @property
    def values(self) -> dict[str, float]:
        """Symbol -> number."""
        return {given.symbol: given.value for given in self.inputs}

    def amount(self, formula: str) -> float:
        """Return the number of one of the formulas, 0 for an empty one."""
        return evaluate(formula, self.values) if formula else 0.0


@dataclass(frozen=True)
class Kind:
    """How the sizes of a kind are written, and its formulas."""

    sizes: Mapping[str, str]  # all that can be given, in order -> what they are
    least: int  # how many must be
    example: str
    flops: str = ""
    moved: str = ""
    far: str = ""
    scores: str = ""
    values: Mapping[str, str] = field(default_factory=dict)  # with a number format -> of what
    constants: tuple[Input, ...] = ()
    defaults: Sizes = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)  # of sizes that are no counts
    is_vector: bool = False
    section: str = "roofline: arithmetic intensity"

    @property
    def bytes(self) -> tuple[str, ...]:
        """Sizes that are bytes, "400GB"."""
        return tuple(name for name, unit in self.units.items() if unit == "bytes")


KINDS: Mapping[str, Kind] = {
    "matmul": Kind(
        dict(m="rows of activations: the batch", n="columns of the weights", k="contracted"),
        3,
        "8192,8192,8192",
        flops="2 * m * n * k",
        moved="x * m * k + w * k * n + y * m * n",
        far="w * k * n",
        values=dict(x="activations", w="weights", y="results"),
        section="roofline: matrix multiplication",
    ),
    # Products of experts: rows of a group have its weights. Forward it is g,m,n,k, the gradient of
    # inputs g,m,k,n and that of weights g,k,n,m.
    "grouped": Kind(
        dict(
            g="groups: experts",
            m="rows of a group on average",
            n="columns of weights",
            k="contracted",
        ),
        4,
        "32,1024,4096,7168",
        flops="2 * g * m * n * k",
        moved="g * (x * m * k + w * k * n + y * m * n)",
        far="g * w * k * n",
        values=dict(x="activations", w="weights", y="results"),
        section="roofline: matrix multiplication",
    ),
    # Scores, softmax and average of values, fused: scores never reach the memory. Forward it reads
    # q, k, v and writes the result; backward it reads and writes twice as much, and makes the
    # scores again (arXiv 2205.14135, algorithm 4).
    "attention": Kind(
        dict(
            B="sequences",
            N="heads",
            T="queries of a sequence",
            S="keys of a sequence",
            H="head dimension",
            K="key heads",
        ),
        5,
        "1,32,4096,4096,128,8",
        flops="2 * r * B * N * H * T * S",
        moved="2 * a * B * H * (x * N * T + z * K * S)",
        far="2 * a * B * H * z * K * S",
        scores="B * N * T * S",
        values=dict(x="activations", z="keys and values"),
        section="transformers: attention",
    ),
    "elementwise": Kind(  # an operation on equal arrays
        dict(E="elements of the result", i="arrays that are read", f="operations per element"),
        1,
        "65536,2,1",
        flops="f * E",
        moved="x * E * (i + 1)",
        values=dict(x="a value"),
        defaults={"i": 1, "f": 1},
        is_vector=True,
    ),
    "reduce": Kind(
        dict(E="elements"),
        1,
        "1e9",
        flops="E - 1",
        moved="x * (E + 1)",
        values=dict(x="a value"),
        is_vector=True,
    ),
    "embedding": Kind(  # the row of every token; no row is read twice
        dict(T="tokens", D="width of a row", V="rows of the table"),
        3,
        "4096,8192,128256",
        moved="T * (p + D * x) + min(T, V) * D * w",
        far="min(T, V) * D * w",
        values=dict(w="the table", x="activations"),
        constants=(Input("p", NUMBER_BYTES["int32"], "bytes", "of a token's number"),),
    ),
    "read": Kind(
        dict(V="read"),
        1,
        "400GB",
        moved="V",
        far="V",
        units={"V": "bytes"},
        section="tpus: worked problems",
    ),
    "copy": Kind(dict(V="copied"), 1, "64MiB", moved="2 * V", far="V", units={"V": "bytes"}),
    "work": Kind(  # FLOPs of matrix products
        dict(F="", Q=""),
        1,
        "1e12,4GB",
        flops="F",
        moved="Q",
        far="Q",
        units={"F": "FLOPs", "Q": "bytes"},
    ),
}
OPTIONS: Mapping[str, tuple[str, ...]] = {  # of `scaling kernel` -> kinds that have it
    "weights": ("matmul", "grouped", "embedding"),
    "output": ("matmul", "grouped"),
    "kv": ("attention",),
    "compute": ("matmul", "grouped", "attention", "work"),
    "from": ("matmul", "grouped", "attention", "embedding", "read", "copy", "work"),
    "causal": ("attention",),
    "backward": ("attention",),
    "library": ("attention",),
}


def check_options(kind: str, given: Mapping[str, object]) -> None:
    """Raise InputError for an option that is given and that the kind does not have."""
    for name, value in given.items():
        if value and kind not in OPTIONS[name]:
            raise InputError(f"--{name} is of {', '.join(OPTIONS[name])}, not of {kind}")


def work_of(
    kind: str,
    sizes: Sizes,
    formats: KernelFormats,
    causal: bool = False,
    backward: bool = False,
) -> KernelWork:
    """Return the kernel of a kind with these sizes.

    Args:
        sizes: symbol -> number.
        causal: of attention, whose scores are then half as many.
        backward: of attention: a pass of five products.

    Raises:
        InputError: a format that is not known, or sizes that do not fit together.
    """
    row = KINDS[kind]
    sizes = {**row.defaults, **sizes}
    if kind == "matmul" and "b" in sizes:
        # `b` products at once.
        row = replace(
            row,
            sizes={"b": "products, each with its own weights", **row.sizes},
            flops=row.flops.replace("2 *", "2 * b *"),
            moved=f"b * ({row.moved})",
            far=f"b * {row.far}",
        )
    if kind == "attention":
        sizes.setdefault("K", sizes["N"])
        row = _attention(row, sizes, causal, backward)
    inputs = (
        *(Input(s, sizes[s], row.units.get(s, ""), row.sizes[s]) for s in row.sizes if s in sizes),
        *row.constants,
        *(formats.value(symbol, what) for symbol, what in row.values.items()),
    )
    known = {given.symbol for given in inputs}
    able = lambda formula: formula if known.issuperset(symbols(formula)) else ""
    flops, moved, far = map(able, (row.flops, row.moved, row.far))
    return KernelWork(kind, inputs, flops, moved, far, row.scores, row.is_vector, row.section)


def _attention(row: Kind, sizes: Sizes, causal: bool, backward: bool) -> Kind:
    N, K, T, S = (sizes[name] for name in "NKTS")
    if np.any(N % K):
        raise InputError(f"{N:g} heads are not a multiple of {K:g} key heads: N % K must be 0")
    if causal and np.any(T > S):
        raise InputError(f"{T:g} queries see {S:g} keys: causal attention needs T <= S")
    phase, passes = ("backward", BACKWARD_PRODUCTS) if backward else ("forward", FORWARD_PRODUCTS)
    constants = (
        Input("r", sum(passes), "", f"products: {phase}"),
        Input("a", 2 if backward else 1, "", "times that q, k, v and the result are moved"),
    )
    seen = lambda text: text.replace("T * S", "T * (S - T / 2)") if causal else text
    return replace(row, flops=seen(row.flops), scores=seen(row.scores), constants=constants)
