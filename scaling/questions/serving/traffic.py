"""Requests: the prompt, the tokens after it, servers for both, and what batches give.

prefill               2 P A / (R C)                P tokens at the peak of the R devices
request latency       prefill + G x step           G tokens after the prompt
requests per second   B / (G x step)
prefill : decode      prefill x B / (G x step)     servers of both kinds that keep up
mixed step            step + B/G x prefill         each step reads the prompts of B/G new requests
tokens evicted        B (P + G) / G                per step, of the requests that end
batch within t        min(t / (k + a), (t - w) / k)     k, a seconds of a sequence's KV cache and
                                                   FLOPs, w of the weights
"""

from dataclasses import dataclass, replace

from scaling.meshes.errors import check_range
from scaling.profiles.io import ideal
from scaling.profiles.power import power_file
from scaling.questions.answer import Answer, Input, Value
from scaling.questions.least import least_where
from scaling.questions.serving.case import ServingCase
from scaling.questions.serving.decode import decode_seconds, decode_step
from scaling.questions.serving.kernels import ForwardPass
from scaling.questions.serving.memory import fitting_batch, memory_of
from scaling.questions.serving.step import (
    decode_pass,
    mixed_pass,
    pass_seconds,
    prompt_pass,
    totals,
)

MOST_ROWS = 24  # powers of two of the frontier
MOST_BATCH = 1 << 24  # sequences of a shard that are tried, chosen by this project


@dataclass(frozen=True)
class ServedRequest:
    """Tokens of one request; None: not asked."""

    prompt: int | None = None
    generate: int | None = None
    utilization: float | None = None  # of the prefill's peak; None: as the kernels are priced
    step_time: float | None = None  # s that a step may take

    def __post_init__(self) -> None:
        if self.utilization is not None:
            check_range("--mfu", self.utilization, 0.001, 1)
        if self.step_time is not None:
            check_range("--step-time", self.step_time, 1e-9, 1e9)


def throughput(case: ServingCase, step: Answer) -> list[Answer]:
    """Return tokens per second: of all, of a device, of a user."""
    t, fitted = seconds_of_step(step)
    return [
        case.ranged(case.answer("tokens/s", "tokens/s", "B / t", t, fitted=fitted), inverse=True),
        case.answer("tokens/s of a device", "tokens/s", "B / (N * t)", t, fitted=fitted),
        case.answer("tokens/s of a user", "tokens/s", "1 / t", t, fitted=fitted),
        case.answer("MFU of decoding", "", "2 * B * A / (N * C * t)", t, fitted=fitted),
        *energy(case, t, fitted["t"]),
    ]


def seconds_of_step(step: Answer) -> tuple[Input, dict[str, float]]:
    """Return the textbook's seconds of a step as the letter t, and the fitted ones."""
    return Input("t", float(step.ideal or 0.0), "s", "of a step"), {"t": float(step)}


def request_answers(case: ServingCase, step: Answer, request: ServedRequest) -> list[Answer]:
    """Return what prompts and answers of these lengths take."""
    parts = [] if request.step_time is None else [batch_within(case, request.step_time)]
    prefill = prefill_time(case, request) if request.prompt else None
    if prefill is not None:
        parts.append(prefill)
    if not request.generate:
        return parts
    t, fitted = seconds_of_step(step)
    G = Input("G", request.generate, "tokens", "that are generated")
    parts += [
        case.answer("decoding of a request", "s", "G * t", G, t, fitted=fitted),
        case.answer("requests per second", "1/s", "B / (G * t)", G, t, fitted=fitted),
        case.answer("sequences that end in a step", "sequences", "B / G", G),
    ]
    if prefill is None:
        return parts
    assert request.prompt is not None
    copies = case.servers.devices // case.servers.mesh.tensor
    P = Input("P", request.prompt, "tokens", "of a prompt")
    t_p = Input("t_p", float(prefill.ideal or 0.0), "s", "of a prompt")
    n = Input("n", copies, "prompts", "at once on as many devices")
    ratio = "t_p * B / (n * G * t)" if copies > 1 else "t_p * B / (G * t)"
    fitted |= {"t_p": float(prefill)}
    name = "prefill servers for one of decoding"
    return [
        *parts,
        case.answer("request latency", "s", "t_p + G * t", t_p, G, t, fitted=fitted),
        case.answer(name, "", ratio, t_p, n, G, t, fitted=fitted),
        case.answer("tokens evicted in a step", "tokens", "B * (P + G) / G", P, G),
        *_mixed(case, request, (t_p, n, G, t), fitted["t"]),
    ]


def _mixed(
    case: ServingCase, request: ServedRequest, inputs: tuple[Input, ...], step: float
) -> list[Answer]:
    """Steps of an engine that reads the prompts of new requests beside the tokens of others.

    Fewer than one prompt a step is one in some steps. Half of all steps take at most the median;
    how much of the mean's prompts it has is B / G over 1 + B / G, a guess between none where
    prompts are rare and all where each step has some.
    """
    assert request.prompt is not None and request.generate is not None
    work = mixed_pass(case, request.prompt, case.batch / request.generate)
    share = min(1.0, case.batch / request.generate)
    seconds = step + share * (pass_seconds(work, case.profile).total - step)
    formula = "t + B * t_p / (n * G)" if inputs[1].value > 1 else "t + B * t_p / G"
    mixed = case.answer("step with prompts mixed in", "s", formula, *inputs, fitted=seconds)
    t_m = Input("t_m", float(mixed.ideal or 0.0), "s", "of a step with prompts mixed in")
    fitted = {"t": step, "t_m": seconds}
    G, t = inputs[2:]
    name, median = "median time between tokens", "t + B / (B + G) * (t_m - t)"
    rate = case.answer("tokens/s with prompts mixed in", "tokens/s", "B / t_m", t_m, fitted=fitted)
    return [
        case.ranged(mixed),
        case.ranged(case.answer(name, "s", median, t, G, t_m, fitted=fitted)),
        case.ranged(rate, inverse=True),
        *energy(case, t_m, seconds, work, share),
    ]


def energy(
    case: ServingCase, t: Input, seconds: float, beside: ForwardPass | None = None, share: float = 0
) -> list[Answer]:
    """Watts of a device in a step of t, and joules of a token; none of a chip of unknown power.

    Args:
        beside: a pass with prompts, which a `share` of all steps is.
    """
    chip, power = case.servers.cluster.accelerator, power_file().board
    if chip.power is None:
        return []
    alone = decode_pass(case.servers, case.model, case.batch, case.context)
    each = [(totals(alone), 1 - share), *([(totals(beside), share)] if beside else [])]
    moved, math = (sum(part * both[i] for both, part in each) for i in (0, 1))
    most = chip.power
    watts = lambda step: float(power.power(most, math / step, moved / step).total)
    w = Input("w", watts(t.value), "W", "of a device")
    drawn, of = watts(seconds), " with prompts mixed in" * (beside is not None)
    name, formula = "energy of a token" + of, f"N * w * {t.symbol} / B"
    token = case.answer(name, "J", formula, w, t, fitted={"w": drawn, t.symbol: seconds})
    low, high = (end * float(token) for end in power.range)
    answers = Answer("power of a device" + of, drawn, "W", ideal=w.value, fitted=drawn)
    return [answers, replace(token, low=low, high=high)]


def prefill_time(case: ServingCase, request: ServedRequest) -> Answer:
    """Return the time of the forward pass of one prompt."""
    model, servers = case.model, case.servers
    assert request.prompt is not None
    P = Input("P", request.prompt, "tokens", "of a prompt")
    R = Input("R", servers.mesh.tensor, "devices", "that share a prompt")
    if request.utilization is not None:
        u = Input("u", request.utilization, "", "share of the peak that prefill reaches")
        return case.answer("prefill", "s", "2 * P * A / (R * C * u)", P, R, u)
    work = prompt_pass(servers, model, request.prompt)
    fitted, bound = (pass_seconds(work, profile) for profile in (case.profile, ideal()))
    note = (
        f"{sum(fitted.network):.3g} s of it are sums over devices, which the textbook hides "
        f"({sum(bound.network):.3g} s with ideal links)"
    )
    return case.answer(
        "prefill",
        "s",
        "2 * P * A / (R * C)",
        P,
        R,
        fitted=fitted.total,
        binds="network" if sum(fitted.network) > fitted.weights else "FLOPs",
        notes=(note,) if fitted.network else (),
    )


def batch_within(case: ServingCase, seconds: float) -> Answer:
    """Return the largest batch whose step takes so long at most, whether or not it fits."""
    model, servers = case.model, case.servers
    rate, peak = servers.peak_bytes, case.letters["C"].value
    of_cache = model.kept(case.context) * model.kv_token / (servers.devices * rate)
    t = Input("t", seconds, "s", "that a step may take")
    k = Input("k", of_cache, "s", "to read a sequence's KV cache")
    a = Input("a", 2 * model.active / (servers.devices * peak), "s", "of a sequence's FLOPs")
    w = Input("w", servers.device_weights(model) / rate, "s", "to read all weights")
    shards = case.shards
    long = lambda count: decode_seconds(case, int(count) * shards).total > seconds
    fitted = (int(least_where(long, MOST_BATCH, whole=True)) - 1) * shards
    name = "largest batch within the step time"
    if w.value > seconds:
        why = f"reading the weights takes {w.value:.3g} s: use more devices, or --weights int8"
        return Answer(name, fitted, "sequences", ideal=0, fitted=fitted, binds=why)
    formula = "floor(min(t / (k + a), (t - w) / k))" if k.value else "floor(t / a)"
    return case.answer(name, "sequences", formula, t, k, a, w, fitted=fitted)


def frontier(case: ServingCase) -> tuple[dict[str, Value], ...]:
    """Return a row for each batch: its step, throughput, and if it fits."""
    memory = memory_of(case.servers.cluster)
    most = None if memory is None else fitting_batch(case, memory[1])
    shards = case.shards
    last = max(case.batch, most or 0)
    powers = {shards << i for i in range(MOST_ROWS) if shards << i <= last}
    batches = sorted({*powers, case.batch, *([most] if most and most >= shards else [])})
    fits = lambda batch: "" if most is None else "yes" if batch <= most else "no"
    return tuple(_row(case, batch, fits(batch)) for batch in batches)


def _row(case: ServingCase, batch: float, fits: str) -> dict[str, Value]:
    step = decode_step(case, batch)
    seconds = float(step)
    return {
        "batch": batch,
        "step (s)": seconds,
        "textbook step (s)": float(step.ideal or 0.0),
        "tokens/s": batch / seconds,
        "tokens/s of a user": 1 / seconds,
        "binds": step.binds.partition(":")[0],
        "fits": fits,
    }
