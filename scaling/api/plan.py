"""The best meshes of a run on clusters, with the split of its batch, remat and ZeRO stage."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

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
from scaling.api.runs import RunLike, Settings, check_named, load_run, timed_calls, with_batch
from scaling.api.whole_run import Operation, whole_run
from scaling.meshes.accelerator import Accelerator
from scaling.meshes.bandwidths import Measured, MeasuredCall
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_keys, whole_number
from scaling.meshes.shape import AXES, MeshShape
from scaling.meshes.units import format_dollars, format_size, three_digits
from scaling.models.accounting import count_parameters
from scaling.planning.certificate import certificate
from scaling.planning.constraints import admitted, fixed_settings, largest, pairs_of
from scaling.planning.front import FrontPoint, pareto_front
from scaling.planning.objectives import HOUR, Goal, Tariff, critical_batch_of
from scaling.planning.reasons import changed_choice, losers, reason, shortfall, unmet
from scaling.planning.result import Plan, Plans
from scaling.planning.rules import judged
from scaling.planning.search import SearchHit, settings_of, words_of
from scaling.planning.sites import Site, node_counts, ranked, search_all
from scaling.planning.space import all_choices
from scaling.planning.variants import (
    VARIED,
    batch_band,
    settings_besides,
    variants,
    with_settings,
)
from scaling.profiles.prices import Price, PriceKind, dollars_per_hour
from scaling.profiles.profile import Profile
from scaling.questions.budget.failures import Reliability
from scaling.questions.budget.training import GUIDE_BYTES
from scaling.run import OURS, Run, run_dict
from scaling.run.optimizers import check_optimizer
from scaling.run.parallelism.checks import check_settings, check_trainable
from scaling.run.run import Dtype
from scaling.simulate.resolve import idle_nodes, target

if TYPE_CHECKING:
    from scaling.pictures.shapes import Picture


@dataclass(frozen=True, repr=False)
class PlanResult(Drawn, Plans):
    """Plans that print as the page of `scaling plan`; see `Plans` for the figures."""

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `scaling plan --json` prints."""
        stated = lambda table: {k: v for k, v in vars(table).items() if v is not None}
        document = stated(self)
        for name in ("plans", "clusters"):
            document[name] = []
            for plan in getattr(self, name):
                row = stated(plan) | {"cluster": plan.cluster.name, "run": run_dict(plan.run)}
                row |= {"price_range": vars(plan.price_range)} if plan.price_range else {}
                document[name].append(row | {"prediction": plan.prediction.to_dict()})
        document["pareto"] = [point.row() for point in self.pareto]
        document["rules"] = [vars(rule) for rule in self.rules]
        document["certificate"] = vars(self.certificate)
        document["losers"] = [vars(loser) for loser in self.losers]
        return document

    def picture(self) -> "Picture":
        """Return the plans' step times, by term; the Pareto front where it was asked for."""
        if not self.plans:
            raise InputError(f"plot: there is no plan to draw: {self.error}")
        if self.pareto:
            return _front_picture(self.pareto)
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
    cluster: ClusterLike | Iterable[ClusterLike] | None = None,
    nodes: int | str | None = None,
    mesh: MeshLike | None = None,
    *,
    set: Settings | None = None,
    batch: int | str | None = None,
    seq_len: int | None = None,
    device_order: str | Iterable[str] | None = None,
    overrides: Overrides | None = None,
    calibration: Path | str | Profile | None = None,
    measured: Measured | None = None,
    top: int = 10,
    objective: Literal["time", "cost", "money", "energy"] = "time",
    tokens: float | str | None = None,
    deadline: float | str | None = None,
    budget: float | str | None = None,
    price: float | None = None,
    price_kind: PriceKind | None = None,
    mtbf_hours: float | None = None,
    save_seconds: float | None = None,
    restart_seconds: float = 0.0,
    pue: float | None = None,
    dollars_per_kwh: float | None = None,
    max_stage: int | None = None,
    max_data: int | None = None,
    max_fsdp: int | None = None,
    max_expert: int | None = None,
    max_context: int | None = None,
    max_tensor: int | None = None,
    fixed: Mapping[str, Any] | Iterable[str] | None = None,
    wide: bool = False,
    precision: str | Iterable[str] | None = None,
    critical_batch: float | str | None = None,
    pareto: bool = False,
    seconds: float | None = None,
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
    >>> sc.plan("gpt2-124m", "dgx-h100", max_data=1, fixed={"mesh.fsdp": 4}, top=1).mesh.fsdp
    4

    Args:
        run: recipe name, `file.py:function`, run.json, its folder, or a Hugging Face config.json,
            or a mapping, or a Run; its mesh, microbatches, remat and ZeRO stage are replaced.
        cluster: catalogue name (`scaling cluster list`) or TOML file, or several joined by commas,
            or a Cluster; None: the run's, else host, this machine.
        nodes: hosts, or a range FROM:TO, of which both ends, divisors of TO and powers of two are
            tried; None: those of the run, else 1.
        mesh: axis sizes such as data=2,fsdp=4: plan the settings of this mesh only.
        batch: sequences of a step on all devices (set batch.global_batch), or a band FROM:TO, of
            which FROM, its doublings and TO are compared at the same loss.
        seq_len: tokens of a sequence: set batch.seq_len.
        top: most plans to return, each of another mesh.
        objective: what is least: time of a step, cost as devices x time, money by the hour of a
            device, or energy with hosts and building, boards at the most that they draw; all but
            time also try fewer nodes.
        tokens: tokens of the whole training, such as 15T: each plan also says its time,
            device-hours, money and energy, with failures, saves and restarts, and their ranges.
        deadline: the longest that the whole training may take, such as 30d or 12h.
        budget: the most dollars that the whole training may take, such as 2M.
        max_stage, max_data, max_fsdp, max_expert, max_context, max_tensor: largest size of this
            axis of the mesh.
        fixed: a setting that `plan` would choose and that is decided, such as mesh.stage=1,
            remat=none, batch.microbatches=4 or sharding.zero_stage=3, or a mapping.
        wide: also try other pipelines (schedules, virtual stages, a last stage with fewer layers)
            and device orders, of those that the run's software can run.
        precision: formats of the products to try, such as bf16,fp8; None: the run's.
        critical_batch: tokens of a step with which a loss takes twice the fewest tokens, such as
            4M, for a band of batches; None: by the number of parameters (Kaplan et al. 2020).
        pareto: price all that fits, and say what is best in time, money or memory margin, given the
            other two.
        seconds: stop searching after so long, a first wave at least; `certificate` has the gap.
        verify: price so many of the best plans again from their compiled programs.

    Raises:
        InputError: unknown names, settings that mean nothing, constraints that contradict one
            another, a chip without the figures that are needed.
    """
    start = time.monotonic()
    limits = amount("--deadline", deadline, "s"), amount("--budget", budget)
    band = batch_band(batch) if batch is not None else []
    top, verify = whole_number("--top", top), whole_number("--verify", verify, 0)
    if seconds is not None and not seconds >= 0:
        raise InputError(f"--seconds {seconds}: a search takes 0 or more")
    keep_devices_free()
    set = with_batch(set, band[0] if band else None, seq_len)
    resolved = load_run(run, mesh=mesh, device_order=device_order, set=set)
    resolved = resolved if mesh is not None else replace(resolved, mesh=None)
    check_settings(resolved)
    if resolved.software == OURS:
        check_optimizer(resolved)
    critical = amount("--critical-batch", critical_batch) or critical_batch_of(resolved.model)
    compared = (critical if band[1:] else None), float(resolved.batch.tokens)
    goal = Goal(objective, amount("--tokens", tokens), *limits, *compared)
    decided = pairs_of(fixed or (), "--fixed")
    varied = {key: decided.pop(key) for key in VARIED if key in decided}
    others = with_settings(variants(resolved, wide, band, _formats(precision)), varied)
    sizes = max_stage, max_data, max_fsdp, max_expert, max_context, max_tensor
    constraints = (
        *(largest(axis, n) for axis, n in zip(AXES, sizes, strict=True) if n is not None),
        *fixed_settings(resolved, decided),
    )
    calls = timed_calls(measured, resolved, cluster)
    reliability = Reliability(mtbf_hours, save_seconds, restart_seconds)
    saved = GUIDE_BYTES * count_parameters(resolved.model).total
    operation = Operation(reliability, saved, pue, dollars_per_kwh)
    dear = lambda chip: dollars_per_hour(chip, price_kind, price)
    sites, typed, warnings = _sites(
        resolved, cluster, nodes, overrides, calibration, calls, dear, operation
    )
    sites = [replace(site, constraints=constraints, variants=others) for site in sites]
    for site in sites:
        site.tariff.check(goal)
    states = search_all(sites, goal, top, seconds)
    certified = certificate(states)
    hits = ranked(states)[:top]
    closed = {hit: _predicted(hit) for hit in hits}
    pairs, error = list(closed.items()), None
    if not pairs and any(state.priced for state in states):
        error = unmet(goal, sites)
    elif not pairs:
        error = "; ".join(shortfall(s, site.cluster) for s, site in zip(states, sites, strict=True))
    if verify and pairs:
        again = [(hit, _predicted(hit, "compiled")) for hit in hits[:verify]]
        fit = [(hit, p) for hit, p in again if p.memory.fits is not False]
        fit.sort(key=lambda pair: _verified_value(*pair))
        pairs = [*fit, *pairs[verify:]]
        error = None if pairs else _shortfall_of([prediction for _, prediction in again])
    best = {p.source: p for hit, p in pairs[:1] for p in (closed[hit], p)}  # of each front end
    tariffs = {site.cluster.name: site.tariff for site in sites}
    described = lambda found: tuple(
        _plan(rank, hit, prediction, best, goal, tariffs[hit.cluster.name], operation, resolved)
        for rank, (hit, prediction) in enumerate(found, 1)
    )
    plans, firsts = described(pairs), [s.best[0] for s in states if pairs and sites[1:] and s.best]
    after = None
    if plans:
        name, chosen = plans[0].cluster.name, plans[0].run
        moved = chosen.device_order != resolved.device_order
        order = ",".join(chosen.device_order) if moved else device_order
        how: dict[str, Any] = {"device_order": order, "overrides": overrides}
        how |= {"calibration": calibration, "measured": measured}
        where = {"cluster": typed[name], "nodes": plans[0].cluster.nodes}
        settings = settings_of(chosen) | settings_besides(chosen, resolved)
        asked = request(run, **where, set=set, **how).changed(mesh=str(chosen.mesh), set=settings)
        after = asked.words("predict", "--explain")
    state = min(states, key=lambda s: s.best[0].value if s.best else math.inf)
    first = pairs[0][0] if pairs else None
    space = all_choices(first.target.run, first.cluster.devices) if first else ()
    return PlanResult(
        plans,
        sum(s.space for s in states),
        sum(s.priced for s in states),
        sum(s.pruned for s in states),
        sum(s.infeasible for s in states),
        optimal=certified.gap == 0,
        seconds=time.monotonic() - start,
        objective=objective,
        losers=tuple(losers(state)),
        verified=sum(plan.prediction.source == "compiled" for plan in plans),
        error=error,
        warnings=(*warnings, *_untrained(resolved)),
        constraints=(
            *(constraint.text for constraint in constraints),
            *(f"--fixed {key}={value}" for key, value in varied.items()),
        ),
        critical_batch=goal.critical,
        limits=goal.limits,
        certificate=certified,
        pareto=pareto_front(sites, goal) if pareto and plans else (),
        rules=tuple(judged(first, admitted(space, constraints))) if first else (),
        clusters=described(
            (hit, _predicted(hit)) for hit in sorted(firsts, key=lambda hit: hit.value)
        ),
        network=_network(sites[0], plans[0], goal) if plans and sites[0].profile.network else None,
        next=after,
    )


def _formats(texts: str | Iterable[str] | None) -> list[Dtype]:
    """Formats of products, each of which is one."""
    texts = texts.split(",") if isinstance(texts, str) else texts or ()
    known: dict[str, Dtype] = {name: name for name in get_args(Dtype)}
    asked = [text.strip() for text in texts]
    check_keys(asked, known, "--precision", "format")
    return [known[name] for name in asked]


def _front_picture(points: Sequence[FrontPoint]) -> "Picture":
    """The front for a billion tokens; in device-hours where nobody states a price."""
    from scaling.pictures.front import FrontMark, front

    priced, billion = all(point.price is not None for point in points), 1e9
    marks = []
    for point in points:
        seconds = billion / point.tokens_per_second
        cost = seconds / HOUR * point.devices * (point.price or 0.0 if priced else 1.0)
        where = f"{point.devices} devices of {point.cluster.name}, {point.share:.1%} free"
        marks.append(FrontMark(seconds, cost, point.share, f"{point.run.mesh} on {where}"))
    title = f"{points[0].run.name}: time, money and memory margin"
    what, show = ("dollars", format_dollars) if priced else ("device-hours", three_digits)
    names = "time for a billion tokens", f"{what} for a billion tokens"
    return front(marks, title, names, show)


def _sites(
    run: Run,
    cluster: ClusterLike | Iterable[ClusterLike] | None,
    nodes: int | str | None,
    overrides: Overrides | None,
    calibration: Path | str | Profile | None,
    calls: tuple[MeasuredCall, ...],
    price: Callable[[Accelerator], Price | None],
    operation: Operation,
) -> tuple[list[Site], dict[str, ClusterLike | None], list[str]]:
    """The clusters that were named, each as it was typed by its name, and warnings."""
    if isinstance(cluster, str):
        cluster = [name.strip() for name in cluster.split(",")]
    several = [cluster] if cluster is None or isinstance(cluster, Path | Cluster) else list(cluster)
    if calls and several[1:]:
        raise InputError("--measured is of one cluster: name that --cluster alone")
    counts = None if nodes is None else node_counts(nodes)
    if run.mesh and counts and counts[1:]:
        raise InputError(
            f"--nodes {nodes} and --mesh {run.mesh} contradict each other: the mesh says how many "
            "devices there are; leave one of them out"
        )
    typed: dict[str, ClusterLike | None] = {}
    sites, warnings = [], []
    for each in several:
        count = counts[-1] if counts else None
        place = target(run, each, count, as_overrides(overrides)).cluster
        if place.name in typed:
            raise InputError(f"--cluster names {place.name} twice; name it once")
        typed[place.name] = each
        if calibration is None:
            check_named(each, run, place)
        profile, notes = load_profile(place, calibration, measured=calls)
        warnings += [*notes, *(idle_nodes(run.mesh, place) if run.mesh else ())]
        chip = place.accelerator
        tariff = Tariff(chip.name, price(chip), operation.most_watts(place), operation.goodput)
        sites.append(Site(run, place, counts or [place.nodes], profile, tariff))
    return sites, typed, warnings


def _network(site: Site, first: Plan, goal: Goal) -> str:
    """What the calls that were timed change in the choice."""
    fits = replace(site, profile=replace(site.profile, network=()))
    other = fits.search(goal, 1).best[0]
    here = predict(other.run, other.cluster, source="analytic", calibration=site.profile)
    lost = float(here.step_time) / first.step_time
    lost *= 1.0 if goal.objective == "time" else here.devices / first.prediction.devices
    return changed_choice(site.profile.network, first.run, other.run, lost - 1, goal.objective)


def _predicted(hit: SearchHit, source: str = "analytic") -> PredictionResult:
    return predict(hit.run, hit.cluster, source=source, calibration=hit.target.profile)


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


def _verified_value(hit: SearchHit, prediction: PredictionResult) -> float:
    """The objective by the compiled program."""
    seconds = np.asarray(float(prediction.step_time))
    return float(hit.target.value(seconds, prediction.devices))


def _plan(
    rank: int,
    hit: SearchHit,
    prediction: PredictionResult,
    best: Mapping[str, PredictionResult],
    goal: Goal,
    tariff: Tariff,
    operation: Operation,
    asked: Run,
) -> Plan:
    assert prediction.pricing.run is not None
    run, price = prediction.pricing.run, tariff.price
    besides = [f"{key}={value}" for key, value in settings_besides(run, asked).items()]
    first, growth = best[prediction.source], goal.growth(run.batch.tokens)
    why = prediction.bottleneck if rank == 1 else reason(prediction, first)
    assert first.pricing.run is not None
    if (least := first.pricing.run.batch.tokens) != run.batch.tokens:
        each = float(prediction.step_time) / run.batch.tokens * growth
        more = each / (float(first.step_time) / least * goal.growth(least)) - 1
        why = f"{more:+.1%} time to the same loss: {run.batch.tokens:,} tokens a step"
    plan = Plan(rank, run, hit.cluster, prediction, why, price=tariff.dollars, price_range=price)
    plan = replace(plan, besides=", ".join(besides), growth=growth)
    if goal.tokens is None or not prediction.tokens_per_second:
        return plan
    tokens = goal.tokens * growth
    return replace(plan, **whole_run(prediction, hit.cluster, tokens, price, operation))
