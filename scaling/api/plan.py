"""The best meshes of a run on a cluster, with the split of its batch, remat and ZeRO stage."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scaling.api.calibrate import load_profile
from scaling.api.inputs import (
    ClusterLike,
    MeshLike,
    Overrides,
    amount,
    as_overrides,
    keep_devices_free,
)
from scaling.api.predict import predict
from scaling.api.public_api import Drawn, entrance
from scaling.api.request import request
from scaling.api.result import PredictionResult
from scaling.api.runs import RunLike, Settings, check_named, load_run, with_batch
from scaling.meshes.errors import InputError, check_keys, whole_number
from scaling.meshes.rules import divisors
from scaling.meshes.shape import MeshShape
from scaling.meshes.units import format_size
from scaling.planning.reasons import losers, reason, shortfall
from scaling.planning.result import Plan, Plans
from scaling.planning.search import PlanTarget, SearchHit, search, settings_of, words_of
from scaling.planning.space import all_choices
from scaling.profiles.profile import Profile
from scaling.run import OURS, Run, run_dict
from scaling.run.optimizers import check_optimizer
from scaling.run.parallelism.checks import check_settings, check_trainable
from scaling.simulate.resolve import idle_nodes, target

if TYPE_CHECKING:
    from scaling.pictures.shapes import Picture

OBJECTIVES = ("time", "cost", "energy")


@dataclass(frozen=True, repr=False)
class PlanResult(Drawn, Plans):
    """Plans that print as the page of `scaling plan`; see `Plans` for the figures."""

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `scaling plan --json` prints."""
        stated = lambda table: {k: v for k, v in vars(table).items() if v is not None}
        document = stated(self) | {"plans": []}
        for plan in self.plans:
            assert isinstance(plan.prediction, PredictionResult)
            row = stated(plan) | {
                "run": run_dict(plan.run),
                "prediction": plan.prediction.to_dict(),
            }
            del row["cluster"]
            document["plans"].append(row)
        document["losers"] = [vars(loser) for loser in self.losers]
        return document

    def picture(self) -> "Picture":
        """Return the plans' step times, by term."""
        if not self.plans:
            raise InputError(f"plot: there is no plan to draw: {self.error}")
        from scaling.pictures.bars import step_bars

        first = self.plans[0]
        title = f"{first.run.name} on {first.cluster.nodes} x {first.cluster.name}: best plans"
        bars = {f"{plan.rank}. {plan.run.mesh}": plan.prediction for plan in self.plans}
        return step_bars(bars, title)

    def __str__(self) -> str:
        from scaling.report.plan import plan_page

        return plan_page(self)

    def line(self) -> str:
        best = f"{self.best.mesh} {self.best.step_time:.4g} s" if self.best else "nothing fits"
        return f"{len(self.plans)} plans of {self.space} configurations: {best}"


@entrance
def plan(
    run: RunLike,
    cluster: ClusterLike | None = None,
    nodes: int | None = None,
    mesh: MeshLike | None = None,
    *,
    set: Settings | None = None,
    batch: int | None = None,
    seq_len: int | None = None,
    device_order: str | Iterable[str] | None = None,
    overrides: Overrides | None = None,
    calibration: Path | str | Profile | None = None,
    top: int = 10,
    objective: Literal["time", "cost", "energy"] = "time",
    tokens: float | str | None = None,
    verify: int = 0,
) -> PlanResult:
    """Find the best meshes for a run, with microbatches, remat and ZeRO stage, that fit in memory.

    Every configuration is priced from its closed form, or left out because a bound says that it
    cannot be among the best.

    >>> import scaling as sc
    >>> found = sc.plan("gpt2-124m", cluster="dgx-h100", top=3)
    >>> [row["rank"] for row in found.rows()], found.best.prediction.memory.fits
    ([1, 2, 3], True)
    >>> found.step_time == found.rows()[0]["step_time"]
    True
    >>> found.space == found.priced + found.pruned + found.infeasible
    True

    Args:
        run: recipe name, `file.py:function`, run.json, its folder, or a Hugging Face config.json,
            or a mapping, or a Run; its mesh, microbatches, remat and ZeRO stage are replaced.
        cluster: catalogue name (`scaling cluster list`) or TOML file, or a Cluster; None: the
            run's, else host, this machine.
        mesh: axis sizes such as data=2,fsdp=4: plan the settings of this mesh only.
        batch: sequences of a step on all devices: set batch.global_batch.
        seq_len: tokens of a sequence: set batch.seq_len.
        top: most plans to return, each of another mesh.
        objective: what is least: time of a step, cost as devices x time, or energy at the chips'
            power limit; the last two also try fewer nodes.
        tokens: tokens of the whole training, such as 15T: each plan also says its time,
            device-hours and energy.
        verify: price so many of the best plans again from their compiled programs.

    Raises:
        InputError: unknown names, settings that mean nothing, a chip without the figures that are
            needed.
    """
    check_keys([objective], OBJECTIVES, "--objective", "objective")
    top, verify = whole_number("--top", top), whole_number("--verify", verify, 0)
    tokens = amount("--tokens", tokens)
    keep_devices_free()
    start = time.monotonic()
    set = with_batch(set, batch, seq_len)
    resolved = load_run(run, mesh=mesh, device_order=device_order, set=set)
    resolved = resolved if mesh is not None else replace(resolved, mesh=None)
    check_settings(resolved)
    if resolved.software == OURS:
        check_optimizer(resolved)
    place = target(resolved, cluster, nodes, as_overrides(overrides)).cluster
    if calibration is None:
        check_named(cluster, resolved, place)
    profile, warnings = load_profile(place, calibration)
    how = {"device_order": device_order, "overrides": overrides, "calibration": calibration}
    asked = request(run, cluster=cluster, nodes=nodes, set=set, **how)
    power = place.accelerator.power
    if objective == "energy" and power is None:
        raise InputError(
            f"--objective energy: {place.accelerator.name} has no figure 'power' (W); state it in "
            "an accelerator file of your own, or use --objective cost"
        )
    by_devices = objective != "time"  # energy is this times one power limit
    value = lambda seconds, devices: seconds * (devices if by_devices else 1)
    several = by_devices and not resolved.mesh and not place.virtual_devices
    sizes = divisors(place.nodes) if several else [place.nodes]
    targets = [PlanTarget(resolved, replace(place, nodes=nodes), profile, value) for nodes in sizes]
    state = search([(t, all_choices(t.run, t.cluster.devices)) for t in targets], top)

    def predicted(hit: SearchHit, source: str = "analytic") -> PredictionResult:
        chosen = hit.choices.run(resolved, hit.index)
        return predict(chosen, hit.cluster, source=source, calibration=profile)

    pairs = [(hit, predicted(hit)) for hit in state.best[:top]]
    closed = dict(pairs)
    error = None if pairs else shortfall(state, place)
    if verify and pairs:
        again = [(hit, predicted(hit, "compiled")) for hit, _ in pairs[:verify]]
        fit = [(hit, p) for hit, p in again if p.memory.fits is not False]
        fit.sort(key=lambda pair: value(float(pair[1].step_time), pair[1].devices))
        pairs = [*fit, *pairs[verify:]]
        error = None if pairs else _shortfall_of([prediction for _, prediction in again])
    best = {p.source: p for hit, p in pairs[:1] for p in (closed[hit], p)}  # of each front end
    plans = tuple(_plan(i, *pair, best, tokens) for i, pair in enumerate(pairs, 1))
    after = None
    if plans:
        first = plans[0]
        chosen = {"nodes": first.cluster.nodes, "mesh": str(first.run.mesh)}
        after = asked.changed(**chosen, set=settings_of(first.run)).words("predict", "--explain")
    return PlanResult(
        *(plans, state.space, state.priced, state.pruned, state.infeasible),
        optimal=True,
        seconds=time.monotonic() - start,
        objective=objective,
        losers=tuple(losers(state)),
        verified=sum(plan.prediction.source == "compiled" for plan in plans),
        error=error,
        warnings=(
            *warnings,
            *(idle_nodes(resolved.mesh, place) if resolved.mesh else ()),
            *_untrained(resolved),
        ),
        next=after,
    )


def _untrained(run: Run) -> tuple[str, ...]:
    """A warning where the plans of our trainer are of a step that it does not do on any mesh."""
    try:
        if run.software == OURS:
            check_trainable(run, MeshShape(), "plan")
    except InputError as error:
        return (f"closed forms of a step that cannot be compiled: {error}",)
    return ()


def _shortfall_of(compiled: list[PredictionResult]) -> str:
    """One sentence where closed forms fit and none of their compiled programs does."""
    lacks = lambda p: float(p.memory.peak) - (p.memory.capacity or 0.0)
    closest = min(compiled, key=lacks)
    assert closest.pricing.run is not None
    return (
        f"{len(compiled)} plan(s) fit by their closed forms, and none by its compiled program: "
        f"{words_of(closest.pricing.run)} comes closest and lacks {format_size(lacks(closest))} on "
        "each device; use a larger --top and --verify, or more nodes"
    )


def _plan(
    rank: int,
    hit: SearchHit,
    prediction: PredictionResult,
    best: Mapping[str, PredictionResult],
    tokens: float | None,
) -> Plan:
    assert prediction.pricing.run is not None
    why = prediction.bottleneck if rank == 1 else reason(prediction, best[prediction.source])
    plan = Plan(rank, prediction.pricing.run, hit.cluster, prediction, why)
    if tokens is None or not prediction.tokens_per_second:
        return plan
    seconds = tokens / float(prediction.tokens_per_second)
    power = hit.cluster.accelerator.power
    energy = None if power is None else power * prediction.devices * seconds
    hours = prediction.devices * seconds / 3600
    return replace(plan, total_time=seconds, device_hours=hours, energy=energy)
