"""Transfers as collectives of the schedule, with what runs beside them.

A transfer that is hidden is issued at a place and waited for at another; its share that is not
(`scaling.analytic.software`) runs alone.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from scaling.analytic.software import XLA
from scaling.analytic.step import FLOAT32, StepSizes, Transfer, as_int
from scaling.analytic.weights import ATTENTION, MLP
from scaling.program.ir import Collective, Number, Operation, Origin, Phase, Wait, as_float, some

ROUNDING = 1e-9  # of counts of calls
PHASES: Mapping[str, Phase] = {  # of the places that begin with these words
    "forward": "forward",
    "remat": "remat",
    "backward": "backward",
}
EXCHANGES = "experts out", "experts back"  # how places end where tokens meet their experts

# How places end where a layer's matrices are gathered: in each microbatch, and once per step.
OF_LAYERS = tuple(f"{part} weights" for part in (ATTENTION, MLP)) + ("start attention", "start mlp")


@dataclass(frozen=True)
class ScheduledCollectives:
    """Collectives at one place: those that run beside something, and those that run alone."""

    beside: tuple[Collective, ...] = ()
    alone: tuple[Collective, ...] = ()

    def merged(self, other: "ScheduledCollectives") -> "ScheduledCollectives":
        """The collectives of both."""
        return ScheduledCollectives(self.beside + other.beside, self.alone + other.alone)

    def masked(self, mask: Number, words: str = "") -> "ScheduledCollectives":
        """The collectives with no bytes in configurations where `mask` is 0, not 1."""
        cut = lambda calls: tuple(
            replace(c, name=f"{c.name} {words}".rstrip(), bytes=c.bytes * mask)
            for c in calls
            if some(c.bytes * mask)
        )
        return ScheduledCollectives(cut(self.beside), cut(self.alone))

    def spread(self, count: Number) -> "ScheduledCollectives":
        """The part of the collectives that runs beside each of `count` microbatches."""
        each = lambda calls: tuple(replace(c, part=c.part / count) for c in calls)
        return ScheduledCollectives(each(self.beside), each(self.alone))

    def split(self, count: int, size: Number) -> "list[ScheduledCollectives]":
        """The collectives in `count` equal calls, one for each product.

        They stay one call where all `size` bytes are few: XLA joins such calls.
        """
        few = np.less_equal(size, XLA.combined)
        if np.all(few):
            return [self, *[NO_COLLECTIVES] * (count - 1)]
        share = lambda i: np.where(few, float(i == 0), 1 / count)[()]
        part = lambda calls, i: tuple(
            replace(c, name=f"{c.name} part {i}", bytes=c.bytes * share(i)) for c in calls
        )
        return [
            ScheduledCollectives(part(self.beside, i), part(self.alone, i)) for i in range(count)
        ]

    @property
    def issued(self) -> list[Operation]:
        """The operations that start them; those that run alone are over at once."""
        return [*self.exposed, *self.beside]

    @property
    def waits(self) -> list[Operation]:
        """The waits for those that run beside something."""
        return [Wait(c.name, c.origin) for c in self.beside]

    @property
    def exposed(self) -> list[Operation]:
        """Those that run alone, as synchronous operations."""
        return [replace(c, asynchronous=False) for c in self.alone]

    def wrap(self, block: Sequence[Operation], first: bool = True) -> list[Operation]:
        """The block with what runs beside it, and before (or after) it what runs alone."""
        inside = [*self.beside, *block, *self.waits]
        return [*self.exposed, *inside] if first else [*inside, *self.exposed]


NO_COLLECTIVES = ScheduledCollectives()


@dataclass(frozen=True)
class Traffic:
    """The transfers of a step that move something, by place, as collectives."""

    step: StepSizes
    transfers: Iterable[Transfer]

    @cached_property
    def of_place(self) -> Mapping[tuple[str, bool], list[Transfer]]:
        """They by place, and whether in layers with experts; each has a name of its own."""
        places: dict[tuple[str, bool], list[Transfer]] = defaultdict(list)
        alike: Counter = Counter()
        for t in self.transfers:
            if t.axes and some(t.bytes * t.calls):
                key = t.place, t.moe, t.axes, t.kind, t.what
                alike[key] += 1
                number = f" {alike[key]}" if alike[key] > 1 else ""
                places[t.place, t.moe].append(replace(t, what=f"{t.what}{number}"))
        return places

    def at_place(
        self, place: str, runs: Number | None, hidden: Number = 0.0, moe: bool = False
    ) -> ScheduledCollectives:
        """The collectives of a place that is passed `runs` times per step; None: all in one call.

        A share `hidden` of them can run beside something else. It is a part of the same calls: no
        latency comes twice.
        """
        lines = self.of_place.get((place, moe), ())
        every = tuple(call for line in lines for call in self._collectives(line, runs))
        if np.all(hidden == 0):
            return ScheduledCollectives(alone=every)
        if np.all(hidden == 1):
            return ScheduledCollectives(beside=every)
        beside = tuple(replace(c, part=hidden) for c in every)
        alone = (replace(c, name=f"{c.name} alone", part=1 - hidden, issue=0.0) for c in every)
        return ScheduledCollectives(beside, tuple(alone))

    def first_call(
        self, place: str, runs: Number, moe: bool
    ) -> tuple[ScheduledCollectives, Number]:
        """The first call of the one transfer of a place, and its calls in each of `runs` passes."""
        lines = self.of_place.get((place, moe))
        if not lines:
            return NO_COLLECTIVES, 0
        (transfer,) = lines
        once = replace(transfer, calls=as_int(np.greater(transfer.calls, 0)))
        return ScheduledCollectives(tuple(self._collectives(once, 1))), transfer.calls / np.maximum(
            runs, 1
        )

    def _collectives(self, transfer: Transfer, runs: Number | None) -> list[Collective]:
        """The calls of one transfer in one pass; they have no bytes where it does not run."""
        passes = 1 if runs is None else np.maximum(runs, 1)  # of a stage that is the head alone: 0
        calls = as_float(np.asarray(transfer.calls / passes))
        needed = 1 if runs is None else np.ceil(calls - ROUNDING)  # 0 where it does not run
        first, _, rest = transfer.place.partition(" ")
        layer = "layers/" + rest.split()[0] if rest.startswith((ATTENTION, MLP)) else rest
        name = f"{transfer.place} {transfer.kind}[{transfer.axes}] {transfer.what}"
        name += " of experts" * transfer.moe
        shared = transfer.bytes * calls / np.maximum(needed, 1)
        one = Collective(
            name,
            Origin(PHASES.get(first, ""), layer),
            kind=transfer.kind,
            axes=tuple(transfer.axes.split("+")),
            bytes=shared,
            dtype=self._dtype(transfer),
            issue=self.step.issue_of(transfer.axes),
            apart=not self.step.is_own_trainer
            and (first in ("start", "end") or rest.endswith(("weights", "gradients"))),
        )
        return [
            replace(one, name=f"{name} {i}" if i else name, bytes=shared * np.less(i, needed))
            for i in range(int(np.max(needed)))
        ]

    def _dtype(self, transfer: Transfer) -> str:
        """The format in which gradients are summed, else that of operands of products."""
        step = self.step
        width: Number = step.itemsize
        if transfer.place.startswith("end"):
            width = step.gradient_itemsize
        elif transfer.place.endswith("gradients"):
            width = step.arising_itemsize
        elif step.gathers_fp8 and transfer.place.endswith(OF_LAYERS):
            return "fp8"
        return "fp32" if np.all(width == FLOAT32) else step.run.precision.between
