"""Requests: the prompt, the tokens after it, servers for both, and what batches give.

prefill               2 P A / (R C)                P tokens at the peak of the R devices
request latency       prefill + G x step           G tokens after the prompt
requests per second   B / (G x step)
prefill : decode      prefill x B / (G x step)     servers of both kinds that keep up
tokens evicted        B (P + G) / G                per step, of the requests that end
batch within t        min(t / (k + a), (t - w) / k)     k, a seconds of a sequence's KV cache and
                                                   FLOPs, w of the weights
"""

from dataclasses import dataclass

from scaling.meshes.errors import check_range
from scaling.profiles.io import ideal
from scaling.questions.answer import Answer, Input, Value, by_formula
from scaling.questions.serving.decode import Case, decode_seconds, decode_step
from scaling.questions.serving.memory import fitting_batch, memory_of
from scaling.questions.serving.step import calls, pass_seconds, prompt_pass

MOST_ROWS = 24  # powers of two of the frontier
MOST_BATCH = 1 << 24  # sequences of a shard that are tried, chosen by this project


@dataclass(frozen=True)
class Request:
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


def throughput(case: Case, step: Answer) -> list[Answer]:
    """Return tokens per second: of all, of a device, of a user."""
    B = Input("B", case.batch, "sequences")
    N = Input("N", case.servers.devices, "devices")
    t = Input("t", _ideal(step), "s", "of a step")
    seconds = float(step)
    return [
        by_formula("tokens/s", "tokens/s", "B / t", (B, t), case.batch / seconds),
        by_formula(
            *("tokens/s of a device", "tokens/s", "B / (N * t)", (B, N, t)),
            case.batch / (case.servers.devices * seconds),
        ),
        by_formula("tokens/s of a user", "tokens/s", "1 / t", (t,), 1 / seconds),
        _utilization(case, B, N, t, seconds),
    ]


def request_answers(case: Case, step: Answer, request: Request) -> list[Answer]:
    """Return what prompts and answers of these lengths take."""
    parts = [] if request.step_time is None else [batch_within(case, request.step_time)]
    prefill = prefill_time(case, request) if request.prompt else None
    if prefill is not None:
        parts.append(prefill)
    if request.generate:
        parts += _decoding(case, step, request.generate)
    if prefill is not None and request.generate:
        parts += _both(case, step, prefill, request)
    return parts


def prefill_time(case: Case, request: Request) -> Answer:
    """Return the time of the forward pass of one prompt."""
    model, servers = case.model, case.servers
    assert request.prompt is not None
    dtype = model.formats.compute
    inputs = [
        Input("P", request.prompt, "tokens", "of a prompt"),
        Input("A", model.active, "parameters", "that a token uses"),
        Input("R", servers.mesh.tensor, "devices", "that share a prompt"),
        Input("C", servers.cluster.accelerator.peak(dtype), "FLOP/s", f"{dtype} peak"),
    ]
    formula, notes = "2 * P * A / (R * C)", []
    if request.utilization is not None:
        formula = "2 * P * A / (R * C * u)"
        inputs.append(Input("u", request.utilization, "", "share of the peak that prefill reaches"))
        return by_formula("prefill", "s", formula, tuple(inputs))
    work = prompt_pass(model, request.prompt)
    found = calls(model, servers, work)
    fitted = pass_seconds(model, servers, work, case.profile, found)
    bound = pass_seconds(model, servers, work, ideal(), found)
    if found:
        notes.append(
            f"{sum(fitted.network):.3g} s of it are sums over devices, which the textbook hides "
            f"({sum(bound.network):.3g} s with ideal links)"
        )
    binds = "network" if sum(fitted.network) > fitted.weights else "FLOPs"
    more = {"binds": binds, "notes": tuple(notes)}
    return by_formula("prefill", "s", formula, tuple(inputs), fitted.total, **more)


def batch_within(case: Case, seconds: float) -> Answer:
    """Return the largest batch whose step takes so long at most, whether or not it fits."""
    model, servers = case.model, case.servers
    W, C = servers.peak_bytes, servers.cluster.accelerator.peak(model.formats.compute)
    t = Input("t", seconds, "s", "that a step may take")
    k = Input(
        *("k", model.kept(case.context) * model.kv_token / (servers.devices * W), "s"),
        "to read a sequence's KV cache",
    )
    a = Input("a", 2 * model.active / (servers.devices * C), "s", "of a sequence's FLOPs")
    w = Input("w", servers.device_weights(model) / W, "s", "to read all weights")
    fitted = _fitted_batch(case, seconds)
    name = "largest batch within the step time"
    if w.value > seconds:
        why = f"reading the weights takes {w.value:.3g} s: use more devices, or --weights int8"
        return Answer(name, fitted, "sequences", ideal=0, fitted=fitted, binds=why)
    if not k.value:
        return by_formula(name, "sequences", "floor(t / a)", (t, a), fitted)
    formula = "floor(min(t / (k + a), (t - w) / k))"
    return by_formula(name, "sequences", formula, (t, k, a, w), fitted)


def _fitted_batch(case: Case, seconds: float) -> int:
    """The last batch, doubling and halving, whose fitted step is short enough; 0: none."""
    shards = case.servers.mesh.data * case.servers.mesh.expert
    short = lambda count: decode_seconds(case, count * shards).total <= seconds
    low, high = 0, 1
    while high < MOST_BATCH and short(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if short(middle) else (low, middle)
    return low * shards


def _utilization(case: Case, B: Input, N: Input, t: Input, seconds: float) -> Answer:
    dtype = case.model.formats.compute
    A = Input("A", case.model.active, "parameters", "that a token uses")
    C = Input("C", case.servers.cluster.accelerator.peak(dtype), "FLOP/s", f"{dtype} peak")
    formula = "2 * B * A / (N * C * t)"
    fitted = 2 * case.batch * case.model.active / (N.value * C.value * seconds)
    return by_formula("MFU of decoding", "", formula, (B, A, N, C, t), fitted)


def frontier(case: Case) -> tuple[dict[str, Value], ...]:
    """Return a row for each batch: its step, throughput, and if it fits."""
    memory = memory_of(case.servers.cluster)
    most = None if memory is None else fitting_batch(case, memory[1])
    shards = case.servers.mesh.data * case.servers.mesh.expert
    last = max(case.batch, most or 0)
    powers = {shards << i for i in range(MOST_ROWS) if shards << i <= last}
    batches = sorted({*powers, case.batch, *([most] if most and most >= shards else [])})
    fits = lambda batch: "" if most is None else "yes" if batch <= most else "no"
    return tuple(_row(case, batch, fits(batch)) for batch in batches)


def _row(case: Case, batch: int, fits: str) -> dict[str, Value]:
    step = decode_step(case, batch)
    seconds = float(step)
    return {
        "batch": batch,
        "step (s)": seconds,
        "textbook step (s)": _ideal(step),
        "tokens/s": batch / seconds,
        "tokens/s of a user": 1 / seconds,
        "binds": step.binds.partition(":")[0],
        "fits": fits,
    }


def _decoding(case: Case, step: Answer, tokens: int) -> list[Answer]:
    B = Input("B", case.batch, "sequences")
    G = Input("G", tokens, "tokens", "that are generated")
    t = Input("t", _ideal(step), "s", "of a step")
    seconds = float(step)
    return [
        by_formula("decoding of a request", "s", "G * t", (G, t), tokens * seconds),
        by_formula(
            *("requests per second", "1/s", "B / (G * t)", (B, G, t)),
            case.batch / (tokens * seconds),
        ),
        by_formula("sequences that end in a step", "sequences", "B / G", (B, G)),
    ]


def _both(case: Case, step: Answer, prefill: Answer, request: Request) -> list[Answer]:
    assert request.prompt is not None and request.generate is not None
    copies = case.servers.devices // case.servers.mesh.tensor
    P = Input("P", request.prompt, "tokens", "of a prompt")
    G = Input("G", request.generate, "tokens", "that are generated")
    B = Input("B", case.batch, "sequences")
    t = Input("t", _ideal(step), "s", "of a step")
    t_p = Input("t_p", _ideal(prefill), "s", "of a prompt")
    n = Input("n", copies, "prompts", "at once on as many devices")
    several = (n,) if copies > 1 else ()
    formula = "t_p * B / (n * G * t)" if several else "t_p * B / (G * t)"
    seconds, first = float(step), float(prefill)
    ratio = first * case.batch / (copies * request.generate * seconds)
    latency = first + request.generate * seconds
    name = "prefill servers for one of decoding"
    return [
        by_formula("request latency", "s", "t_p + G * t", (t_p, G, t), latency),
        by_formula(name, "", formula, (t_p, B, *several, G, t), ratio),
        by_formula("tokens evicted in a step", "tokens", "B * (P + G) / G", (B, P, G)),
    ]


def _ideal(answer: Answer) -> float:
    return float(answer.ideal or 0.0)
