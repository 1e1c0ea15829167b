"""The best meshes of a run on clusters, with the split of its batch, remat and ZeRO stage."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from scaling.api.inputs import (
    ClusterLike,
    MeshLike,
    Overrides,
    amount,
    keep_devices_free,
)
from scaling.api.plan_result import PlanResult, by_money, plan_of
from scaling.api.plan_sites import sites_of
from scaling.api.predict import predict
from scaling.api.public_api import entrance
from scaling.api.request import request
from scaling.api.result import PredictionResult
from scaling.api.runs import RunLike, Settings, load_run, timed_calls, with_batch
from scaling.api.whole_run import Operation
from scaling.meshes.bandwidths import Measured
from scaling.meshes.errors import InputError, check_keys, whole_number
from scaling.meshes.shape import AXES, MeshShape
from scaling.meshes.units import format_size
from scaling.models.accounting import count_parameters
from scaling.planning.certificate import certificate
from scaling.planning.constraints import PARTIAL, fixed_settings, largest, pairs_of
from scaling.planning.front import pareto_front
from scaling.planning.objectives import Goal, critical_batch_of
from scaling.planning.reasons import changed_choice, losers, shortfall, unmet
from scaling.planning.result import Plan
from scaling.planning.rules import judged
from scaling.planning.search import SearchHit, settings_of, words_of
from scaling.planning.sites import Site, ranked, search_all
from scaling.planning.space import ChoicesBatch, all_choices
from scaling.planning.variants import (
    VARIED,
    batch_band,
    settings_besides,
    variants,
    with_settings,
)
from scaling.profiles.prices import PriceKind, dollars_per_hour
from scaling.profiles.profile import Profile
from scaling.questions.budget.failures import Reliability
from scaling.questions.budget.training import GUIDE_BYTES
from scaling.run import OURS, Run
from scaling.run.optimizers import check_optimizer
from scaling.run.parallelism.checks import check_settings, check_trainable
from scaling.run.run import Dtype
from scaling.simulate.capacity import LIKELY, RESERVE, RISK

MOST_BEYOND = 3  # plans beyond the risk that are shown


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
    risk: float = RISK,
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
            device, or energy with hosts, network and building, boards as their step uses them; all
            but time also try fewer nodes.
        tokens: tokens of the whole training, such as 15T: each plan also says its time,
            device-hours, money and energy, with failures, saves and restarts, and their ranges.
        deadline: the longest that the whole training may take, such as 30d or 12h.
        budget: the most dollars that the whole training may take, such as 2M.
        max_stage, max_data, max_fsdp, max_expert, max_context, max_tensor: largest size of this
            axis of the mesh.
        fixed: a setting that `plan` would choose and that is decided, such as mesh.stage=1,
            remat=none, batch.microbatches=4 or sharding.zero_stage=3, or a mapping.
        wide: also try other pipelines (schedules, virtual stages, first and last stages with fewer
            layers), remat of some layers of a stage, and device orders, of those that the run's
            software can run.
        precision: formats of the products to try, such as bf16,fp8; None: the run's.
        critical_batch: tokens of a step with which a loss takes twice the fewest tokens, such as
            4M, for a band of batches; None: by the number of parameters (Kaplan et al. 2020).
        pareto: price all that fits, and say what is best in time, money or memory margin, given the
            other two.
        risk: largest probability of running out of memory, as other software's allocator takes
            more or less; what is faster beyond it is shown apart.
        seconds: stop searching after so long, a first wave at least, and one for each rule of
            thumb; `certificate` has the gap.
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
    if not 0 < risk < 1:
        raise InputError(f"--risk {risk}: a probability above 0 and below 1, such as {RISK}")
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
    formats, partial = _formats(precision), PARTIAL in decided
    others = with_settings(variants(resolved, wide, band, formats, partial), varied)
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
    sites, typed, warnings = sites_of(
        resolved, cluster, nodes, overrides, calibration, calls, dear, operation
    )
    sites = [replace(site, constraints=constraints, variants=others, risk=risk) for site in sites]
    for site in sites:
        site.tariff.check(goal)
    states = search_all(sites, goal, top, seconds)
    left = lambda: None if seconds is None else max(start + seconds - time.monotonic(), 0.0)
    rules_of = lambda hit: list(
        judged(hit, all_choices(hit.target.run, hit.cluster.devices, constraints), left())
    )
    of_cluster = dict(zip((site.cluster.name for site in sites), states, strict=True))
    first = next(iter(ranked(states)), None)
    rules = rules_of(first) if first else []
    # A search that was stopped may have missed what a rule finds.
    while first and (better := [hit for _, hit in rules if hit and hit.value < first.value]):
        first = min(better, key=lambda hit: hit.value)
        of_cluster[first.cluster.name].keep(first)
        rules = rules_of(first)
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
        fit.sort(key=lambda pair: _objective(*pair))
        pairs = [*fit, *pairs[verify:]]
        error = None if pairs else _shortfall_of([prediction for _, prediction in again])
    best = {p.source: p for hit, p in pairs[:1] for p in (closed[hit], p)}  # of each front end
    tariffs = {site.cluster.name: site.tariff for site in sites}
    said = by_money if objective == "money" else tuple
    described = lambda found: said(
        tuple(
            plan_of(rank, hit, outcome, best, goal, tariffs[hit.cluster.name], operation, resolved)
            for rank, (hit, outcome) in enumerate(found, 1)
        )
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
    if pairs and pairs[0][0] is not first:  # by its compiled program another is the first
        rules = rules_of(pairs[0][0])
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
        rules=tuple(rule for rule, _ in rules) if pairs else (),
        clusters=described(
            (hit, _predicted(hit)) for hit in sorted(firsts, key=lambda hit: hit.value)
        ),
        beyond=_beyond(sites, goal, risk, left(), *pairs[:1]),
        network=_network(sites[0], plans[0], goal, left())
        if plans and sites[0].profile.network
        else None,
        next=after,
    )


def _beyond(
    sites: Sequence[Site],
    goal: Goal,
    risk: float,
    seconds: float | None,
    best: tuple[SearchHit, PredictionResult] | None = None,
) -> tuple[Plan, ...]:
    """Plans that fit more likely than not and are better than the best that the risk allows."""
    if sites[0].run.software not in RESERVE or risk >= 1 - LIKELY:
        return ()
    wider = [replace(site, risk=1 - LIKELY) for site in sites]
    states = search_all(wider, goal, MOST_BEYOND, seconds)
    least = _objective(*best) if best else math.inf
    plans: list[Plan] = []
    for hit in ranked(states)[:MOST_BEYOND]:
        prediction = _predicted(hit)
        memory, likely = prediction.memory, float(prediction.memory.fit_probability or 0.0)
        value = _objective(hit, prediction)
        if likely < 1 - risk and value < least:
            one = hit.choices.only(np.arange(hit.choices.count) == hit.index)
            strict = replace(hit.target, risk=risk)
            needs = np.max(strict.needed(strict.program(ChoicesBatch((one,)))))
            lacks = format_size(float(needs) - (memory.capacity or 0.0))
            less = f", {1 - value / least:.1%} less {goal.objective}" if best else ""
            why = f"fits with {100 * likely:.3g}%: lacks {lacks}{less}"
            plans.append(Plan(len(plans) + 1, hit.run, hit.cluster, prediction, why))
    return tuple(plans)


def _formats(texts: str | Iterable[str] | None) -> list[Dtype]:
    texts = texts.split(",") if isinstance(texts, str) else texts or ()
    known: dict[str, Dtype] = {name: name for name in get_args(Dtype)}
    asked = [text.strip() for text in texts]
    check_keys(asked, known, "--precision", "format")
    return [known[name] for name in asked]


def _network(site: Site, first: Plan, goal: Goal, seconds: float | None) -> str:
    """What the calls that were timed change in the choice."""
    fits = replace(site, profile=replace(site.profile, network=()))
    other = fits.search(goal, 1, seconds).best[0]
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


def _objective(hit: SearchHit, prediction: PredictionResult) -> float:
    """The objective of a prediction of a hit, as if it fitted for certain."""
    seconds = np.asarray(float(prediction.step_time))
    draw, power = hit.target.draw, prediction.power
    watts = (draw(power.total),) if draw and power else ()
    return float(hit.target.value(seconds, prediction.devices, *watts))
