"""Why a configuration loses to the best one: the terms of its step that are longer."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import exp, inf, log
from statistics import fmean

from scaling.meshes.cluster import Cluster
from scaling.meshes.units import format_days, format_dollars, format_size, format_time
from scaling.planning.objectives import Goal
from scaling.planning.result import Loser
from scaling.planning.search import Search, words_of
from scaling.planning.sites import Site, best_of
from scaling.profiles.profile import TimedCurve
from scaling.run import Run
from scaling.simulate.prediction import TERMS, Prediction

WORDS: Mapping[str, str] = {
    "compute": "compute",
    "optimizer": "in the optimizer",
    "exposed_communication": "waiting for communication",
    "bubble": "pipeline bubble",
    "host": "waiting for the host",
}
NOTICED = 0.2  # share of the whole difference from which on a term is named
MOST_REFUSALS = 5
# `model.n_layers=32 is not divisible by stage=64; use stage of 1, 2, ..., or model.n_layers of 64`
INDIVISIBLE = re.compile(
    r"(?P<what>.* is not divisible by \w+)=(?P<size>\d+)(?P<use>[:;].*?)(?:, or [\w.]+ of \d+)?"
)
AXES = {
    "stage": "a pipeline", "tensor": "tensor parallelism", "context": "context parallelism",
    "expert": "expert parallelism", "fsdp": "sharded weights", "data": "data parallelism",
}  # fmt: skip


def reason(prediction: Prediction, best: Prediction) -> str:
    """`+3.1%: +120 ms waiting for communication (all-gather over fsdp), +12 ms compute`."""
    terms = {name: float(getattr(prediction.time, name)) for name in TERMS}
    first = {name: float(getattr(best.time, name)) for name in TERMS}
    seconds = float(prediction.step_time), float(best.step_time)
    text = _longer(terms, first, seconds, (prediction.devices, best.devices))
    waits = sorted(prediction.collectives, key=lambda line: -float(line.exposed))
    wait = WORDS["exposed_communication"]
    most = f"{wait} ({waits[0].kind} over {waits[0].axis})" if waits else wait
    return text.replace(wait, most)


def _longer(
    terms: Mapping[str, float],
    best: Mapping[str, float],
    times: tuple[float, float],
    devices: tuple[int, int],
) -> str:
    """What a step takes more than the best one, whose time and devices are the second of a pair.

    `+1.2% device time: 64 devices`, on another number of devices than the best.
    """
    if devices[0] != devices[1]:
        used, least = (time * count for time, count in zip(times, devices, strict=True))
        return f"{used / least - 1:+.1%} device time: {devices[0]:,} devices"
    seconds, least = times
    more = {name: terms[name] - best[name] for name in WORDS}
    named = [n for n in WORDS if more[n] > NOTICED * max(seconds - least, 0.0) and more[n] > 0]
    named.sort(key=lambda name: -more[name])
    parts = ", ".join(f"+{format_time(more[name])} {WORDS[name]}" for name in named[:2])
    return f"{seconds / least - 1:+.1%}" + (f": {parts}" if parts else "")


def changed_choice(
    curves: Sequence[TimedCurve], now: Run, otherwise: Run, loss: float, objective: str
) -> str:
    """What calls that were timed change: the best run, and that of the fits alone, `loss` worse.

    `network at 24 % of the catalogue's on 16 nodes: the first choice was data=64, now ...`
    """
    farthest = max(curves, key=lambda curve: curve.ranks)
    alike = [curve for curve in curves if curve.ranks == farthest.ranks]
    share = exp(-fmean(log(float(curve.factor(inf))) for curve in alike))
    where = f"on {farthest.nodes} nodes" if farthest.nodes > 1 else f"among {farthest.ranks} ranks"
    what = "network" if farthest.nodes > 1 else "links of a node"
    text = f"{what} at {share:.0%} of what the catalogue's would do {where}: the first choice "
    if now == otherwise:
        return text + "is the same"
    better = {"time": "faster", "cost": "cheaper", "money": "cheaper"}.get(
        objective, f"less {objective}"
    )
    names = [f"{run.mesh}" for run in (otherwise, now)]
    if names[0] == names[1]:
        names = [words_of(run) for run in (otherwise, now)]
    return f"{text}was {names[0]}, now {names[1]}, which is {loss:.1%} {better} here"


def losers(state: Search) -> Iterator[Loser]:
    """The best mesh that cuts each axis, where another is better, and what could not run."""
    cut = dict.fromkeys(a for f in state.best for a, n in f.choices.mesh.sizes.items() if n > 1)
    for axis in cut:
        best = state.best[0]
        hit = next(f for f in state.best if getattr(f.choices.mesh, axis) > 1)
        if hit is not best:
            seconds = hit.step_time, best.step_time
            sizes = hit.choices.mesh.devices, best.choices.mesh.devices
            why = f"{hit.value / best.value - 1:+.1%} by the objective"
            if hit.run.batch.tokens == best.run.batch.tokens and hit.target.draw is None:
                why = _longer(hit.time, best.time, seconds, sizes)
            yield Loser(f"{AXES[axis]}, at best {hit.choices.mesh}", why)
    if state.pruned:
        why = "slower than all that is listed, even if nothing held their calls up"
        yield Loser("left out by a bound", why, state.pruned)
    for text, count in Counter(merged(state.refusals)).most_common(MOST_REFUSALS):
        yield Loser("cannot run", text, count)


def merged(refusals: Mapping[str, int]) -> dict[str, int]:
    """Reason -> configurations, with sizes of one axis that do not divide one number in one line.

    `model.n_kv_heads=8 is not divisible by tensor=16, 32; use tensor of 1, 2, 4, 8`
    """
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for text in refusals:
        match = INDIVISIBLE.fullmatch(text)
        key = (match["what"], match["use"]) if match else (text, "")
        groups.setdefault(key, []).append((match["size"] if match else "", text))
    lines: dict[str, int] = {}
    for (what, use), members in groups.items():
        sizes = ", ".join(sorted((size for size, _ in members), key=int)) if use else ""
        line = members[0][1] if len(members) == 1 else f"{what}={sizes}{use}"
        lines[line] = sum(refusals[text] for _, text in members)
    return lines


def shortfall(state: Search, cluster: Cluster) -> str:
    """One sentence where nothing fits: what comes closest, and what is missing."""
    missing, where = state.shortfall
    if not where:
        first = next(iter(state.refusals), "there are no configurations")
        return f"nothing can run on {cluster.name}: {first}"
    return (
        f"nothing fits: {where} comes closest and lacks {format_size(missing)} on each device; use "
        f"more than {cluster.nodes} node(s) of {cluster.name}, or a smaller model or batch"
    )


def unmet(goal: Goal, sites: Sequence[Site]) -> str:
    """One sentence where configurations fit, and none meets the deadline and the budget."""
    tokens = goal.tokens or 0.0

    def figures(other: Goal) -> tuple[float, float, str]:
        hit, site = best_of(sites, other)
        devices = hit.choices.mesh.devices
        seconds = hit.step_time / hit.run.batch.tokens * tokens / site.tariff.goodput(int(devices))
        dollars = seconds * devices * site.tariff.dollars_per_second
        nodes = f"{hit.cluster.nodes} node(s) of {hit.cluster.name}"
        return seconds, dollars, f"{words_of(hit.run)} on {nodes}"

    fastest, _, where = figures(Goal("time", tokens))
    deadline, budget = format_days(goal.deadline or 0.0), format_dollars(goal.budget or 0.0)
    if goal.deadline is not None and fastest > goal.deadline:
        return (
            f"--deadline of {deadline}: the fastest, {where}, takes {format_days(fastest)}; allow "
            "as much, or use more --nodes or fewer --tokens"
        )
    _, least, where = figures(Goal("money", tokens))
    if least <= (goal.budget or 0.0):
        _, least, where = figures(Goal("money", tokens, goal.deadline))
        return (
            f"--deadline of {deadline} and --budget of {budget} contradict each other: the "
            f"cheapest within the deadline, {where}, takes {format_dollars(least)}"
        )
    return (
        f"--budget of {budget}: the cheapest, {where}, takes {format_dollars(least)}; allow as "
        "much, or use fewer --tokens, or another cluster"
    )
