"""Clusters that a plan is searched on, each with the numbers of its nodes that are tried."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.rules import divisors
from scaling.planning.constraints import Constraint, contradiction
from scaling.planning.objectives import Goal, Tariff, value_of
from scaling.planning.search import PlanTarget, Search, SearchHit, search
from scaling.planning.space import Choices
from scaling.planning.variants import Variant, ends, runs_on
from scaling.profiles.profile import Profile
from scaling.program.ir import Number
from scaling.run import Run
from scaling.simulate.capacity import RISK


@dataclass(frozen=True)
class Site:
    """A cluster with the figures of its devices, and the run that is planned there."""

    run: Run
    cluster: Cluster  # with the most nodes
    counts: Sequence[int]  # of nodes that were asked for
    profile: Profile
    tariff: Tariff
    constraints: Sequence[Constraint] = ()
    variants: Sequence[Variant] = ()  # none: the run alone
    risk: float = RISK  # of running out of memory, at most

    def spaces(self, goal: Goal) -> Iterator[tuple[PlanTarget, Iterator[Choices]]]:
        """Where configurations are priced, and those that the constraints leave.

        For all objectives but time, and with a budget, fewer nodes are tried as well.
        """
        counts, variants = self.counts, self.variants or [Variant(self.run, self.run)]
        fewer = goal.objective != "time" or goal.budget is not None
        if fewer and not self.run.mesh and not self.cluster.virtual_devices and len(counts) == 1:
            counts = divisors(counts[0])
        for nodes in counts:
            place = replace(self.cluster, nodes=nodes)
            for variant in runs_on(place, variants):
                value = partial(value_of, goal, self.tariff, variant.run.batch.tokens)
                draw = partial(self._drawn, nodes) if goal.objective == "energy" else None
                every = variant.choices(place.devices, self.constraints)
                yield PlanTarget(variant.run, place, self.profile, value, self.risk, draw), every

    def _drawn(self, nodes: int, board: Number) -> Number:
        assert self.tariff.draw is not None and self.cluster.accelerator.power is not None
        return self.tariff.draw(board, self.cluster.accelerator.power, nodes)

    def search(self, goal: Goal, top: int, seconds: float | None = None) -> Search:
        """The best configurations that the constraints admit, found within so many seconds."""
        return search(list(self.spaces(goal)), top, seconds)


def search_all(
    sites: Sequence[Site], goal: Goal, top: int, seconds: float | None = None
) -> list[Search]:
    """What is found on each, in an equal part of the seconds.

    Raises:
        InputError: no configuration is as the constraints say.
    """
    each = None if seconds is None else seconds / len(sites)
    states = [site.search(goal, top, each) for site in sites]
    if not any(state.space for state in states) and (constraints := sites[0].constraints):

        def values(some: Sequence[Constraint], key: str) -> set[Any]:
            spaces = (replace(site, constraints=some).spaces(goal) for site in sites)
            every = ((target.run, c) for space in spaces for target, cs in space for c in cs)
            return {value for run, choices in every for value in choices.values(run, key)}

        raise InputError(contradiction(constraints, values))
    return states


def ranked(states: Iterable[Search]) -> list[SearchHit]:
    """The hits of all, the best first."""
    return sorted((hit for state in states for hit in state.best), key=lambda hit: hit.value)


def best_of(sites: Sequence[Site], goal: Goal) -> tuple[SearchHit, Site]:
    """The best configuration, where there is one, and its cluster."""
    found = [(hit, site) for site in sites for hit in site.search(goal, 1).best[:1]]
    return min(found, key=lambda pair: pair[0].value)


def node_counts(nodes: int | str) -> list[int]:
    """Numbers of nodes: one, or of `4:64` both ends, divisors of the larger and powers of two."""
    low, high = ends("--nodes", nodes, "4:64")
    powers = (1 << i for i in range(high.bit_length()))
    return sorted({low, *(n for n in (*divisors(high), *powers) if low <= n <= high)})
