"""The time of a decode step, in which every sequence gets one more token.

    step = B T V / (N W) + max(2 B A / (N C), M / (N W))            the guide's two terms

B sequences with T positions of V bytes each are read by N devices of W bytes/s, A parameters are
multiplied for each at C FLOP/s, M bytes of weights are read once. Fitted, all kernels of the layers
run one after another, and the sums over `tensor` are waited for.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from scaling.profiles.io import ideal
from scaling.questions.answer import Answer, Input, Value, by_formula
from scaling.questions.serving.case import ServingCase
from scaling.questions.serving.step import (
    Call,
    Seconds,
    call_seconds,
    calls,
    decode_pass,
    pass_seconds,
)

SECTION = "inference: theoretical estimates for LLM latency and throughput"
KV_TERM = "B * T * V / (N * W)"
FLOPS_TERM = "2 * B * A / (N * C)"


def decode_seconds(case: ServingCase, batch: float) -> Seconds:
    """The fitted seconds of a step of `batch` sequences."""
    return pass_seconds(decode_pass(case.servers, case.model, batch, case.context), case.profile)


def decode_calls(case: ServingCase) -> list[Call]:
    """The collectives of a step."""
    return calls(decode_pass(case.servers, case.model, case.batch, case.context))


def decode_step(case: ServingCase, batch: float | None = None) -> Answer:
    """Return the time of a decode step, with its parts; `batch` replaces that of the case."""
    case = case if batch is None else replace(case, batch=batch)
    fitted = decode_seconds(case, case.batch)
    products = _products(case, fitted.weights)
    parts = [case.answer("KV cache read", "s", KV_TERM, fitted=fitted.cache), products]
    textbook = tuple(parts)
    parts += [
        _collective(call, seconds, case)
        for call, seconds in zip(decode_calls(case), fitted.network, strict=True)
    ]
    if case.model.config is not None:
        name = "norms, rotations, activations"
        parts.append(Answer(name, fitted.small, "s", fitted=fitted.small, ideal=0.0))
    engine = case.servers.engine
    if fitted.engine:
        name, notes = "what the engine adds", (f"{engine.title}; {engine.evidence}",)
        parts.append(Answer(name, fitted.engine, "s", fitted=fitted.engine, ideal=0.0, notes=notes))
    step = case.answer(
        "decode step",
        "s",
        f"{KV_TERM} + {products.formula}",
        *products.inputs,
        fitted=fitted.total,
        binds=_binds(parts, lambda part: part.fitted),
        ideal_binds=_binds(textbook, lambda part: part.ideal),
        section=SECTION,
        parts=tuple(parts),
    )
    return case.ranged(step)


def _weights_term(case: ServingCase) -> str:
    """The formula of the time to read the weights that a step needs."""
    mesh = case.servers.mesh
    if not case.model.routed:
        return "M / (N * W)" if mesh.data == 1 else "M / (Y * W)"
    experts = f"M_e * (1 - (1 - k / E) ** {'(B / X)' if mesh.data > 1 else 'B'})"
    if mesh.expert == mesh.data == 1:
        return f"(M + {experts}) / (N * W)"
    return f"(M + {experts} / Z) / (Y * W)"


def _products(case: ServingCase, fitted: float) -> Answer:
    """The products of weights: bound by the FLOPs, or by reading the weights."""
    read, dtype = _weights_term(case), case.model.formats.weights
    M = Input("M", case.model.dense_bytes, "bytes", f"of weights in {dtype}")
    math = case.answer("FLOPs", "s", FLOPS_TERM)
    memory = case.answer("weights read", "s", read, M)
    binds = "FLOPs" if float(math) > float(memory) else "memory bandwidth"
    return case.answer(
        "products of weights",
        "s",
        f"max({FLOPS_TERM}, {read})",
        M,
        fitted=fitted,
        binds=binds,
        parts=(math, memory),
    )


def _collective(call: Call, fitted: float, case: ServingCase) -> Answer:
    rate = link_rate(call, case)
    inputs = (
        Input("n", call.calls, "calls"),
        Input("v", call.bytes, "bytes", "of a call"),
        Input("W_a", rate, "bytes/s", f"bytes over seconds among {call.groups.shape[1]}"),
    )
    note = "the textbook's step leaves it out, as if it were hidden"
    return by_formula(call.name, "s", "n * v / W_a", inputs, fitted, notes=(note,))


def link_rate(call: Call, case: ServingCase) -> float:
    """Return bytes over seconds of one call, with every link at its full bandwidth."""
    seconds = call_seconds(call, case.servers, ideal()) / call.calls
    return call.bytes / seconds


def _binds(parts: Iterable[Answer], seconds: Callable[[Answer], Value]) -> str:
    """What takes longest, and why."""
    most = max(parts, key=lambda part: float(seconds(part) or 0.0))
    return f"{most.name}: {most.binds}" if most.binds else most.name
