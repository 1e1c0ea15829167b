"""The ladder of one kernel, collective or step: guess, bound, rule, fit, program, measurement."""

import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from scaling.api.collective import price_collective
from scaling.api.inputs import ClusterLike, MeshLike, load_cluster
from scaling.api.kernel import kernel, sizes_of
from scaling.api.predict import predict
from scaling.api.public_api import entrance
from scaling.api.runs import RunLike, Settings, load_run
from scaling.course.ladder.measured import (
    Measurement,
    measured_collective,
    measured_kernel,
    measured_step,
)
from scaling.course.ladder.rungs import Ladder, Rung, ladder
from scaling.course.language import t
from scaling.course.quizzes.command_lines import call_of
from scaling.meshes.errors import InputError
from scaling.meshes.units import format_size
from scaling.profiles.io import ideal

DEFAULT_SIZE = "1GiB"  # as of scaling collective
EXAMPLE = (
    'scaling learn ladder "collective all-gather --bytes 1GiB --cluster dgx-h100" --guess 2e-3'
)


def ladder_of(line: str, guess: float | None = None) -> Ladder:
    """Return the ladder of a command line of `scaling collective` or `scaling predict`."""
    try:
        words = shlex.split(line.removeprefix("scaling "))
    except ValueError as error:  # a quote that nothing closes
        raise InputError(f"{line!r}: {error}; write {EXAMPLE}") from None
    ladders: Mapping[str, Callable[..., Ladder]]
    ladders = {"collective": collective_ladder, "predict": step_ladder}
    command = words[0] if words else ""
    if command in ladders:
        call = call_of(ladders[command], words[1:], f"a ladder of {command}")
        if command == "collective":
            call.keywords.setdefault("bytes", DEFAULT_SIZE)
        if len(call.args) == 1 and "cluster" in call.keywords:
            return call(guess=guess)
    raise InputError(f"a ladder is of a collective or of a step with --cluster: write {EXAMPLE}")


@entrance
def collective_ladder(
    kind: str,
    bytes: int | str,
    cluster: ClusterLike,
    nodes: int | None = None,
    mesh: MeshLike | None = None,
    axis: str | Iterable[str] | None = None,
    *,
    guess: float | None = None,
) -> Ladder:
    """Return the ladder of one collective, in seconds.

    >>> import scaling as sc
    >>> l = sc.collective_ladder("all-gather", "512MiB", cluster="dgx-h100", guess=2e-3)
    >>> l["bound"].value <= l["textbook"].value < l["fitted"].value
    True

    Args:
        kind, bytes, cluster, nodes, mesh, axis: as for `price_collective`.
        guess: seconds; None: none was given.

    Raises:
        InputError: as `price_collective`; a guess that is not positive.
    """
    _check_guess(guess)
    place = load_cluster(cluster, nodes)
    where = (kind, bytes, place, None, mesh, axis)
    fitted, rule = price_collective(*where), price_collective(*where, ideal=True)
    row = (kind, fitted.bytes, place.name, fitted.ranks, place.nodes)
    found = measured_collective(*row) if mesh is None else None
    size, ranks = format_size(fitted.bytes), t("{n} x {m} ranks", n=fitted.groups, m=fitted.ranks)
    adds = t(
        "{algorithm}: hops, and the share of the links that is reached ({grade})",
        algorithm=fitted.algorithm,
        grade=t(fitted.grade),
    )
    full = t("{algorithm}: no latency, links at their full rate", algorithm=rule.algorithm)
    machine = {"nodes": place.nodes, "cluster": place.name}
    asked = {"kind": kind, "size": size, "ranks": ranks, **machine}
    return ladder(
        t("{kind} of {size}, {ranks} of {nodes} x {cluster}", **asked),
        "s",
        guess,
        (
            Rung("bound", rule.lower_bound, t("bytes that must pass the narrowest links")),
            Rung("textbook", rule.time, full),
            Rung("fitted", fitted.time, adds),
            Rung("compiled", None, t("none: a collective by itself is no program; ask a step")),
            _measured(found, "collective"),
        ),
    )


@entrance
def step_ladder(
    run: RunLike,
    cluster: ClusterLike,
    nodes: int | None = None,
    mesh: MeshLike | None = None,
    source: str = "auto",
    set: Settings | None = None,
    *,
    guess: float | None = None,
) -> Ladder:
    """Return the ladder of one training step, in seconds.

    >>> import scaling as sc
    >>> l = sc.step_ladder("gpt2-124m", cluster="dgx-h100", mesh="data=8", source="analytic")
    >>> l["bound"].value < l["textbook"].value < l["fitted"].value
    True

    Args:
        run, cluster, nodes, mesh, set: as for `predict`.
        source: of the compiled rung: "compiled", "stored", "analytic" (none), or "auto".
        guess: seconds; None: none was given.

    Raises:
        InputError: as `predict`; a guess that is not positive.
    """
    _check_guess(guess)
    described = load_run(run, mesh=mesh, set=set)
    place = load_cluster(cluster, nodes)
    rule = predict(described, place, source="analytic", calibration=ideal())
    fitted = predict(described, place, source="analytic")
    peak = place.accelerator.peak(described.precision.compute) * rule.devices
    bound, closed = float((rule.model_flops or 0.0) / peak), float(rule.step_time)
    priced, tokens = float(fitted.step_time), described.batch.tokens
    asked = {"run": described.name, "mesh": rule.mesh, "nodes": place.nodes, "cluster": place.name}
    found = measured_step(described.name, rule.devices, place.name, tokens)
    return ladder(
        t("a step of {run} on {mesh} of {nodes} x {cluster}", **asked),
        "s",
        guess,
        (
            Rung("bound", bound, t("model FLOPs at the peak of every chip")),
            Rung("textbook", closed, t("closed form: roofline kernels, rings, their overlap")),
            Rung("fitted", priced, t("efficiencies and latencies of published kernels")),
            _compiled(described, place, source),
            _measured(found, "step"),
        ),
    )


@entrance
def kernel_ladder(
    kind: str,
    sizes: str | float | Sequence[Any],
    accelerator: str,
    dtype: str = "bf16",
    *,
    guess: float | None = None,
) -> Ladder:
    """Return the ladder of one kernel on one chip, in seconds.

    >>> import scaling as sc
    >>> l = sc.kernel_ladder("matmul", (16384, 16384, 16384), "h100-sxm")
    >>> l["bound"].value == l["textbook"].value < l["measured"].value
    True

    Args:
        kind, sizes, accelerator, dtype: as for `kernel`.
        guess: seconds; None: none was given.

    Raises:
        InputError: as `kernel`; a guess that is not positive.
    """
    _check_guess(guess)
    answer = kernel(kind, sizes, dtype=dtype, accelerator=accelerator)
    rule = float(answer.ideal or 0.0)
    numbers = tuple(sizes_of(kind, sizes).values())
    found = measured_kernel(kind, numbers, dtype, accelerator)
    words = ", ".join(f"{size:,.0f}" for size in numbers)
    asked = {"kind": kind, "words": words, "dtype": dtype, "chip": accelerator}
    return ladder(
        t("{kind} {words}, {dtype} on {chip}", **asked),
        "s",
        guess,
        (
            Rung("bound", rule, t("{what} at its full rate", what=t(answer.ideal_binds))),
            Rung("textbook", rule, t("the roofline: it is the bound")),
            Rung("fitted", float(answer.fitted or 0.0), t("tiles, waves, the share of the roof")),
            Rung("compiled", None, t("none: a kernel by itself; ask a step")),
            _measured(found, "kernel"),
        ),
    )


def _compiled(run: RunLike, place: ClusterLike, source: str) -> Rung:
    if source == "analytic":
        return Rung("compiled", None, t("none: --source analytic"))
    step = predict(run, place, source=source)
    if step.source == "analytic":
        return Rung("compiled", None, t("none: the trainer's step cannot be compiled for this"))
    adds = t("what XLA makes of the step: its kernels and schedule")
    return Rung("compiled", float(step.step_time), adds)


def _measured(found: Measurement | None, what: str) -> Rung:
    if found is None:
        return Rung(
            "measured",
            None,
            t("none: no measurement of this {what} comes with the package", what=t(what)),
        )
    fields = {"machine": found.machine, "date": found.date}
    used, kept = t("{machine} ({date}; fitted on)"), t("{machine} ({date}; not fitted on)")
    words = (used if found.fitted else kept).format(**fields)
    return Rung("measured", found.seconds, words)


def _check_guess(guess: float | None) -> None:
    if guess is not None and not 0 < guess < math.inf:
        raise InputError(f"guess={guess:g}: a guess is a positive number of seconds")
