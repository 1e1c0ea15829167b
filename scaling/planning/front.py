"""The Pareto front of a plan: what is best in time, money or memory margin, given the other two.

    time     seconds for a token
    money    dollars for a token; devices x time where nobody states a price
    margin   bytes of a device that the step leaves free

Every configuration that fits is priced, so the front is that of the whole space.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scaling.collectives.torus import NoBox
from scaling.meshes.cluster import Cluster
from scaling.planning.objectives import Goal
from scaling.planning.search import PlanTarget, Search
from scaling.planning.sites import Site
from scaling.planning.space import ChoicesBatch, batched
from scaling.run import Run
from scaling.simulate.batch import timeline_of


@dataclass(frozen=True)
class FrontPoint:
    """A configuration that no other beats in all three."""

    run: Run
    cluster: Cluster
    step_time: float  # s
    margin: float  # bytes of a device that are free; infinite where its memory is not known
    share: float  # of what there is
    price: float | None  # dollars for an hour of a device
    growth: float = 1.0  # tokens to the same loss over those with the smallest batch

    @property
    def devices(self) -> int:
        """Devices of its mesh."""
        assert self.run.mesh is not None
        return self.run.mesh.devices

    @property
    def tokens_per_second(self) -> float:
        """Tokens of the smallest batch to the same loss that all devices do in a second."""
        return self.run.batch.tokens / self.step_time / self.growth

    @property
    def dollars_per_million_tokens(self) -> float | None:
        """Dollars for a million tokens; None: nobody states a price."""
        if self.price is None:
            return None
        return self.price * self.devices / 3600 * 1e6 / self.tokens_per_second

    def row(self) -> dict[str, Any]:
        """Its figures in SI units, by name."""
        run = self.run
        return {
            "cluster": self.cluster.name,
            "nodes": self.cluster.nodes,
            "devices": self.devices,
            "mesh": str(run.mesh),
            "global_batch": run.batch.global_batch,
            "microbatches": run.batch.microbatches,
            "remat": str(run.remat),
            "zero_stage": run.sharding.zero_stage,
            "schedule": run.pipeline.schedule,
            "virtual_stages": run.pipeline.virtual_stages,
            "stage_layers": run.pipeline.layers,
            "remat_layers": run.pipeline.remat_layers,
            "remat_fewer": run.pipeline.remat_fewer,
            "precision": run.precision.compute,
            "device_order": ",".join(run.device_order),
            "step_time": self.step_time,
            "tokens_per_second": self.tokens_per_second,
            "dollars_per_million_tokens": self.dollars_per_million_tokens,
            "margin": self.margin if np.isfinite(self.margin) else None,
            "margin_share": self.share if np.isfinite(self.margin) else None,
        }


def pareto_front(sites: Sequence[Site], goal: Goal) -> tuple[FrontPoint, ...]:
    """The front of all sites within the limits of the goal, the fastest first."""
    points = [point for site in sites for point in _of_site(site, goal)]
    priced = all(point.price is not None for point in points)
    seconds = np.array([1 / point.tokens_per_second for point in points])
    each = np.array([(point.price or 0.0 if priced else 1.0) * point.devices for point in points])
    margins = np.array([point.margin for point in points])
    kept = undominated(np.stack([seconds, seconds * each, -margins], axis=1))
    return tuple(sorted((points[i] for i in kept), key=lambda point: -point.tokens_per_second))


def undominated(figures: np.ndarray) -> np.ndarray:
    """Rows of [points, figures], less is better, to which no other is as good in all; ascending.

    Of equal rows one is kept.
    """
    kept, position = np.arange(len(figures)), 0  # positions before this one are of the front
    while position < len(kept):
        here = figures[kept[position]]
        better = (figures[kept] < here).any(axis=1)
        better[position] = True
        position = int(better[:position].sum()) + 1
        kept = kept[better]
    return kept


def _of_site(site: Site, goal: Goal) -> Iterator[FrontPoint]:
    """The fronts of each number of nodes, where time and money are one."""
    for target, every in site.spaces(goal):
        found: list[FrontPoint] = []
        runnable = Search(1).runnable(target, every)
        for choices in batched(target.run, runnable):
            growth = goal.growth(target.run.batch.tokens)
            found += [replace(p, growth=growth) for p in _priced(site, target, choices)]
            figures = np.array([(point.step_time, -point.margin) for point in found])
            found = [found[i] for i in undominated(figures)]
        yield from found


def _priced(site: Site, target: PlanTarget, choices: ChoicesBatch) -> Iterator[FrontPoint]:
    """Those of some configurations that fit and that none of them beats."""
    program = target.program(choices)
    try:
        seconds = np.broadcast_to(timeline_of(program, target.prices).total, (choices.count,))
    except NoBox:
        for each in choices.every if choices.every[1:] else ():
            yield from _priced(site, target, ChoicesBatch((each,)))
        return
    capacity = np.broadcast_to(target.capacity(program), (choices.count,))
    margin = capacity - target.needed(program)
    allowed = np.isfinite(target.value(seconds, choices.mesh.devices))
    fits = np.flatnonzero((margin >= 0) & allowed)
    for i in fits[undominated(np.stack([seconds[fits], -margin[fits]], axis=1))]:
        run, free = choices.run(target.run, int(i)), float(margin[i])
        share = free / float(capacity[i]) if np.isfinite(free) else 1.0
        yield FrontPoint(run, target.cluster, float(seconds[i]), free, share, site.tariff.dollars)
