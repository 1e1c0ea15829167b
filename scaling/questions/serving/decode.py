"""The time of a decode step, in which every sequence gets one more token.

    step = B T V / (N W) + max(2 B A / (N C), M / (N W))            the guide's two terms

B sequences with T positions of V bytes each are read by N devices of W bytes/s, A parameters are
multiplied for each at C FLOP/s, M bytes of weights are read once. Fitted, all kernels of the layers
run one after another, and the sums over `tensor` are waited for.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from scaling.profiles.io import ideal
from scaling.profiles.profile import Profile
from scaling.questions.answer import Answer, Input, Value, by_formula
from scaling.questions.serving.model import ServedModel
from scaling.questions.serving.servers import Servers
from scaling.questions.serving.step import Call, Seconds, call_seconds, calls, decode_pass
from scaling.questions.serving.step import pass_seconds as seconds_of

SECTION = "inference: theoretical estimates for LLM latency and throughput"
KV_TERM = "B * T * V / (N * W)"


@dataclass(frozen=True)
class Case:
    """What is served where, with which figures."""

    model: ServedModel
    servers: Servers
    profile: Profile
    batch: int  # sequences of all devices
    context: int  # tokens of each


def decode_seconds(case: Case, batch: int) -> Seconds:
    """Return the fitted seconds of a step of `batch` sequences."""
    work = decode_pass(case.servers, case.model, batch, case.context)
    parts = calls(case.model, case.servers, work)
    return seconds_of(case.model, case.servers, work, case.profile, parts)


def decode_step(case: Case, batch: int | None = None) -> Answer:
    """Return the time of a decode step, with its parts; `batch` replaces that of the case."""
    case = case if batch is None else replace(case, batch=batch)
    fitted = decode_seconds(case, case.batch)
    cache = cache_inputs(case)
    products = _products(case, fitted.weights)
    parts = [by_formula("KV cache read", "s", KV_TERM, cache, fitted.cache), products]
    textbook = tuple(parts)
    parts += _collectives(case, fitted)
    if case.model.config is not None:
        name = "norms, rotations, activations"
        parts.append(Answer(name, fitted.small, "s", fitted=fitted.small, ideal=0.0))
    return by_formula(
        *("decode step", "s", f"{KV_TERM} + {products.formula}"),
        _merged(cache, products.inputs),
        fitted.total,
        binds=_binds(parts, lambda part: part.fitted),
        ideal_binds=_binds(textbook, lambda part: part.ideal),
        section=SECTION,
        parts=tuple(parts),
    )


def cache_inputs(case: Case) -> tuple[Input, ...]:
    """Return the symbols of the time to read the KV cache."""
    kept = case.model.kept(case.context)
    return (
        Input("B", case.batch, "sequences"),
        Input("T", kept, "tokens", "of each that the KV cache holds"),
        Input("V", case.model.kv_token, "bytes", f"of a token in {case.model.formats.kv}"),
        Input("N", case.servers.devices, "devices"),
        Input("W", case.servers.peak_bytes, "bytes/s", "memory bandwidth of a device"),
    )


def flops_term(case: Case) -> tuple[str, tuple[Input, ...]]:
    """Return the formula of the products' time at the peak, with its symbols."""
    dtype = case.model.formats.compute
    return "2 * B * A / (N * C)", (
        Input("B", case.batch, "sequences"),
        Input("A", case.model.active, "parameters", "that a token uses"),
        Input("N", case.servers.devices, "devices"),
        Input("C", case.servers.cluster.accelerator.peak(dtype), "FLOP/s", f"{dtype} peak"),
    )


def weights_read(case: Case) -> tuple[str, tuple[Input, ...]]:
    """Return the formula of the time to read the weights that a step needs, with its symbols."""
    model, mesh = case.model, case.servers.mesh
    dtype = model.formats.weights
    W = Input("W", case.servers.peak_bytes, "bytes/s", "memory bandwidth of a device")
    M = Input("M", model.dense_bytes, "bytes", f"of weights in {dtype}")
    N = Input("N", case.servers.devices, "devices")
    Y = Input("Y", mesh.tensor, "devices", "along tensor")
    if not model.routed:
        return ("M / (N * W)", (M, N, W)) if mesh.data == 1 else ("M / (Y * W)", (M, Y, W))
    share = (
        "M_e * (1 - (1 - k / E) ** (B / X))" if mesh.data > 1 else "M_e * (1 - (1 - k / E) ** B)"
    )
    experts = (
        Input("M_e", model.routed_bytes, "bytes", f"of routed experts in {dtype}"),
        Input("k", model.used, "experts", "of a token"),
        Input("E", model.experts, "experts", "of a layer"),
        Input("B", case.batch, "sequences"),
        *((Input("X", mesh.data, "", "copies of the model"),) if mesh.data > 1 else ()),
    )
    if mesh.expert == 1 and mesh.data == 1:
        return f"(M + {share}) / (N * W)", (M, *experts, N, W)
    Z = Input("Z", mesh.expert, "devices", "along expert")
    return f"(M + {share} / Z) / (Y * W)", (M, *experts, Z, Y, W)


def _products(case: Case, fitted: float) -> Answer:
    """The products of weights: bound by the FLOPs, or by reading the weights."""
    flops, of_flops = flops_term(case)
    read, of_read = weights_read(case)
    math = by_formula("FLOPs", "s", flops, of_flops)
    memory = by_formula("weights read", "s", read, of_read)
    binds = "FLOPs" if float(math) > float(memory) else "memory bandwidth"
    return by_formula(
        *("products of weights", "s", f"max({flops}, {read})", _merged(of_flops, of_read), fitted),
        binds=binds,
        parts=(math, memory),
    )


def _collectives(case: Case, fitted: Seconds) -> list[Answer]:
    """Each kind of collective, by the textbook at the rate of its links."""
    work = decode_pass(case.servers, case.model, case.batch, case.context)
    found = calls(case.model, case.servers, work)
    return [_collective(c, s, case) for c, s in zip(found, fitted.network, strict=True)]


def _collective(call: Call, fitted: float, case: Case) -> Answer:
    rate = link_rate(call, case.servers)
    inputs = (
        Input("n", call.calls, "calls"),
        Input("v", call.bytes, "bytes", "of a call"),
        Input("W_a", rate, "bytes/s", f"bytes over seconds among {call.groups.shape[1]}"),
    )
    note = "the textbook's step leaves it out, as if it were hidden"
    return by_formula(call.name, "s", "n * v / W_a", inputs, fitted, notes=(note,))


def link_rate(call: Call, servers: Servers) -> float:
    """Return bytes over seconds of one call, with every link at its full bandwidth."""
    seconds = call_seconds(call, servers, ideal()) / call.calls
    return call.bytes / seconds


def _binds(parts: Iterable[Answer], seconds: Callable[[Answer], Value]) -> str:
    """What takes longest, and why."""
    most = max(parts, key=lambda part: float(seconds(part) or 0.0))
    return f"{most.name}: {most.binds}" if most.binds else most.name


def _merged(*several: tuple[Input, ...]) -> tuple[Input, ...]:
    """All symbols once, in their order."""
    return tuple({each.symbol: each for inputs in several for each in inputs}.values())
