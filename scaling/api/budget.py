"""A whole training: time, devices or MFU, with energy, money and failures."""

from collections.abc import Mapping
from typing import Literal

from scaling.api.inputs import (
    MeshLike,
    Overrides,
    amount,
    as_mesh,
    cluster_with,
    device_count,
    products_format,
)
from scaling.api.plan import plan
from scaling.api.public_api import entrance
from scaling.api.runs import RunLike, Settings, load_run, parse_settings
from scaling.meshes.errors import InputError, whole_number
from scaling.meshes.shape import AXES, MeshShape
from scaling.models.accounting import count_parameters, model_flops
from scaling.profiles.prices import PriceKind, dollars_per_hour
from scaling.questions.answer import Answer
from scaling.questions.budget.answer import budget as answer_budget
from scaling.questions.budget.epochs import Epochs, by_epochs
from scaling.questions.budget.failures import Reliability
from scaling.questions.budget.training import (
    GUIDE_BYTES,
    LARGEST,
    MISSING,
    PredictedStep,
    Training,
)
from scaling.run import Run


@entrance
def budget(
    model: RunLike | None = None,
    tokens: float | str | None = None,
    cluster: str = "dgx-h100",
    nodes: int | None = None,
    mesh: MeshLike | None = None,
    *,
    devices: int | None = None,
    tokens_per_device: float | None = None,
    days: float | None = None,
    device_hours: float | str | None = None,
    mfu: float | None = None,
    batch: float | str | None = None,
    samples: float | str | None = None,
    epochs: float | str | None = None,
    step_time: float | str | None = None,
    bytes_per_parameter: float = GUIDE_BYTES,
    compute: str | None = None,
    price: float | None = None,
    price_kind: PriceKind | None = None,
    pue: float | None = None,
    dollars_per_kwh: float | None = None,
    mtbf_hours: float | None = None,
    save_seconds: float | None = None,
    restart_seconds: float = 0.0,
    parameters: float | str | None = None,
    active: float | str | None = None,
    set: Settings | None = None,
    overrides: Overrides | None = None,
) -> Answer:
    """Return how long a training takes, or the devices or MFU that end it in time.

    Of devices, MFU and time two are given; with all three, the tokens or the parameters may be left
    out. Without an MFU that of the best mesh is predicted, from closed forms (`sc.plan`).

    >>> import scaling as sc
    >>> answer = sc.budget("llama3-70b", "15T", "dgx-h100", devices=4096, mfu=0.45)
    >>> round(float(answer) / 86400)                                # days
    40

    Args:
        model: recipe, run.json or Hugging Face config.json; or leave it out and give `parameters`.
        tokens: tokens of the whole training, such as 15T; None: asks how many can be trained.
        cluster: catalogue name or TOML file; its chip counts.
        nodes: number of hosts; None: those of the other options, else 1.
        mesh: axis sizes, of which alone the MFU is predicted; all axes but data share one copy of
            weights and optimizer.
        devices: number of devices.
        tokens_per_device: tokens of a step on a device; with `batch` it says how many devices there
            are.
        days: days that the training may take: asks for the devices, or for the MFU.
        device_hours: hours of all devices together: asks for the MFU.
        mfu: model FLOPs over the peak, such as 0.4; None: predicted, of the best mesh.
        batch: tokens of a step, such as 4M or 4Mi; with `samples` samples of a step; None: the
            recipe's.
        samples: samples of an epoch, each a sequence of the model; in place of `tokens`.
        epochs: how often `samples`, or `tokens`, are seen; None: once.
        step_time: time of a step as measured, such as 1.06s: with `samples` and `batch` no model
            is needed.
        bytes_per_parameter: weights with their optimizer: 10 has bf16 weights and fp32 moments, 16
            mixed precision.
        parameters: parameters of a model that has no name, such as 70e9 or 70B; without it and a
            model the most are asked for.
        active: how many of `parameters` a token uses.

    Raises:
        InputError: unknown names, figures that no training has, too many or too few of them.
    """
    if model is not None and parameters is not None:
        raise InputError("name a MODEL or describe one by --parameters, not both")
    measured, passes = amount("--step-time", step_time, "s"), amount("--epochs", epochs)
    fixed = {"--days": days, "--device-hours": device_hours, "--mfu": mfu}
    _check_passes(tokens, samples, passes, measured, fixed)
    has_length = not (tokens is samples is None)
    missing: Literal["parameters", "tokens", ""] = "" if has_length else "tokens"
    if model is None and parameters is None and measured is None:
        missing = "parameters"
        if not has_length:
            raise InputError(MISSING[missing])
    host, _ = cluster_with(None, cluster, 1, overrides)
    dtype = products_format(host, compute)
    step, run, flops = amount("--batch", batch, most=LARGEST), None, None
    seen, length = amount("--samples", samples, most=LARGEST), 1
    asked_tokens = amount("--tokens", tokens, most=LARGEST) or 1.0
    size = amount("--parameters", parameters, most=LARGEST) or 1.0
    used = amount("--active", active, most=LARGEST) or size
    if model is not None:
        if active is not None:
            raise InputError("--active describes a model by --parameters: leave MODEL out")
        settings = parse_settings(set or ())
        if dtype != "bf16":
            settings.setdefault("precision.compute", dtype)
        run = load_run(model, set=settings)
        counted, length = count_parameters(run.model), run.batch.seq_len
        size, used = counted.total, counted.active
        flops = float(model_flops(run.model, 1, length)) / length
        step = (step or run.batch.global_batch) * length if seen else step or run.batch.tokens
    if seen and not (run or measured):
        raise InputError("--samples of unknown length: name a MODEL, or measure a --step-time")
    asked_tokens = (seen * length if seen else asked_tokens) * (passes or 1.0)
    shape = None if mesh is None else as_mesh(mesh, AXES)
    per_node = host.devices_per_node
    stated: dict[str, int | None] = {
        "--devices": devices,
        "--nodes": None if nodes is None else whole_number("--nodes", nodes) * per_node,
        "--mesh": None if shape is None else shape.devices,
    }
    if tokens_per_device is not None:
        if step is None or not 0 < tokens_per_device <= step:
            raise InputError(
                f"--tokens-per-device {tokens_per_device:g} needs a larger --batch, such as 16M"
            )
        stated["--tokens-per-device"] = int(step // tokens_per_device)
    asked = days is not None or device_hours is not None
    count = _agreed(stated, None if asked else per_node)
    predicted, note = None, Training.note
    is_open = mfu is None and measured is None and not asked and not missing
    if run is not None and count and is_open:
        predicted, note = _predict(run, cluster, count, shape, step, overrides)
    training = Training(
        run.name if run else "a model",
        parameters=size,
        active=used,
        tokens=asked_tokens,
        chip=host.accelerator,
        dtype=dtype,
        devices=count,
        mfu=mfu,
        days=days,
        device_hours=amount("--device-hours", device_hours, most=LARGEST),
        token_flops=flops,
        batch=step,
        state_bytes=bytes_per_parameter,
        shards=shape.devices // shape.data if shape else None,
        slice_devices=host.torus.chips if host.torus else None,
        predicted=predicted,
        note=note,
        nodes=-(-count // per_node) if count else 2,
        pue=pue,
        dollars_per_kwh=dollars_per_kwh,
        price=dollars_per_hour(host.accelerator, price_kind, price),
        asked=missing,
    )
    reliability = Reliability(mtbf_hours, save_seconds, restart_seconds)
    if measured is None:
        return answer_budget(training, reliability)
    if step is None:
        raise InputError("--step-time needs the --batch of that step, in samples or tokens")
    has_model = run is not None or parameters is not None
    once, words = (seen, "samples") if seen else (asked_tokens / (passes or 1.0), "tokens")
    of_step = step / length if seen else step
    data = Epochs(once, of_step, measured, passes or 1.0, words)
    knows_state = has_model or save_seconds is not None
    return by_epochs(
        data, training, count or per_node, reliability if knows_state else None, run is not None
    )


def _check_passes(
    tokens: object,
    samples: object,
    passes: float | None,
    measured: float | None,
    fixed: Mapping[str, object],
) -> None:
    """Raise InputError for samples, epochs and a step time that do not belong together."""
    if tokens is not None and samples is not None:
        raise InputError("--tokens and --samples say the same: give one of them")
    if tokens is samples is None and (passes or measured):
        raise InputError("--epochs and --step-time need --samples of an epoch, or --tokens")
    given = [option for option, value in fixed.items() if value is not None]
    if measured and given:
        raise InputError(f"time and MFU follow from a measured --step-time: leave out {given[0]}")


def _agreed(stated: Mapping[str, int | None], otherwise: int | None) -> int | None:
    """Return the number of devices on which all options agree that state one."""
    counts = {option: count for option, count in stated.items() if count is not None}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{option} {count}" for option, count in counts.items())
        raise InputError(f"these ask for different numbers of devices: {said}")
    count = next(iter(counts.values()), otherwise)
    return None if count is None else device_count(count)


def _predict(
    run: Run,
    cluster: str,
    devices: int,
    mesh: MeshShape | None,
    batch: float | None,
    overrides: Overrides | None,
) -> tuple[PredictedStep | None, str]:
    """Return what `scaling plan` finds best, or why there is none."""
    length = run.batch.seq_len
    sequences = round((batch or run.batch.tokens) / length)
    if not sequences:
        why = f"no MFU is predicted: --batch {batch:g} tokens are less than a sequence of {length}"
        return None, f"{why}; use more, or --set batch.seq_len"
    try:
        place, _ = cluster_with(devices, cluster, None, overrides)
        if place.devices != devices:
            return None, f"{devices} devices are no whole nodes of {place.name}: " + Training.note
        planned = plan(run, place, mesh=mesh, set={"batch.global_batch": sequences}, top=1)
    except InputError as error:
        return None, f"no MFU is predicted: {error}"
    if not planned.plans:
        return None, f"no MFU is predicted: {planned.error}"
    best = planned.plans[0].prediction
    mfu, rate = float(best.mfu or 0.0), float(best.tokens_per_second or 0.0)
    what = "the mesh given" if mesh else f"the best of {planned.space:,} configurations"
    words = (
        f"MFU {mfu:.3g} is predicted for {planned.plans[0].run.mesh}, {what}, with {sequences:,} "
        f"sequences of {length:,} tokens and software {run.software}"
    )
    span = float(best.step_time_low), float(best.step_time_high)
    ends = (span[0] / float(best.step_time), span[1] / float(best.step_time))
    watts = None if best.power is None else float(best.power.total)
    return PredictedStep(mfu, rate, words, ends, watts), ""
