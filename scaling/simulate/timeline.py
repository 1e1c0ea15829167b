"""Start and end of every operation: the schedule run on a compute and four communication streams.

    compute  |matmul|matmul|......wait|matmul|        ....: exposed communication
    comm          |all-gather[fsdp]---|                     |---|: hidden where compute is busy
    permute            |permute[stage]|                     counts once where both communicate

A kernel starts when the compute stream is free. An asynchronous collective is issued there too, but
starts when its own stream is free: permutes have one, all others another, and on each one runs at a
time, in the order of issue, as XLA's GPU runtime has it (openxla/xla, AsyncStreamKind, P2P and
COLLECTIVE). Those `apart` have a third: what moves weights and gradients in software on PyTorch,
where each communicator has a stream (pytorch/pytorch, ProcessGroupNCCL); and a fourth what experts
exchange beside the layers of two microbatches. What runs side by side takes longer
(`scaling.simulate.side_by_side`).

A Wait holds the compute stream until its collective is over; a synchronous collective holds both.
What takes no time, such as what a configuration does not run, is not issued and waits for no
stream. The longest of several branches runs, or the mean of all by their shares: what is in flight
beside them ends at its own time, and the clock of compute stands at its mean. Asynchronous kernels
(copies) get a stream of their own; waiting for them counts as `host`, because they copy to and from
the host.

The host issues kernels and collectives in order, `issue` seconds each, from the start of the step,
and runs ahead: an operation starts when the device is free and it has been issued. Seconds in which
the compute stream waits for that are `host`, also where communication runs beside. A `late` kernel
it issues only when all before is over.

Hidden communication is the union of the intervals of these streams, less the exposed part.

Compute in the bubble trips of a loop (`simulate.pipeline_bubble`) is the bubble of a pipeline.

Every instant of the step is compute, bubble, optimizer, exposed communication or host, so these sum
to the step time. Times and the trip counts of loops may be numpy arrays over configurations.

Only differences between the clocks decide what happens next. So iterations of a loop that follow
one which moved all clocks alike are counted, not run. Clocks that none of them reaches may differ:
those in the past, that of a host which stays ahead, and ends of what is in flight throughout.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import count, groupby, product
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError
from scaling.program.ir import (
    Block,
    Branch,
    Collective,
    Kernel,
    Loop,
    Number,
    Operation,
    Program,
    Wait,
    as_float,
    some,
    walk,
)
from scaling.simulate.prediction import TimeParts
from scaling.simulate.side_by_side import (
    CLOCKS,
    COMMUNICATION,
    Clocks,
    Event,
    Part,
    later,
    sooner,
    stream_of,
    where,
)

COMPUTE, ISSUED = CLOCKS.index("compute"), CLOCKS.index("issued")  # the first that there are
BUSY: tuple[Part, Part] = ("compute", "host")  # what is bubble in the trips of a loop without work
MOST_RUN = 1_000_000  # operations that are run one by one, chosen by this project: half a minute
FEW = 128  # configurations, of which a half takes no less time: 0.7 us a sum of 256 (numpy 2)
ROUNDING = 1e-12  # of sums of float64, relative: far above their 2e-16, far below any time


@dataclass(frozen=True)
class Timeline(TimeParts):
    """Seconds of a step by part, and by operation."""

    by_name: Mapping[str, Number]  # name -> seconds of all its calls
    exposed_by_name: Mapping[str, Number]  # name -> seconds that the compute stream stood still
    events: tuple[Event, ...] = ()  # if recorded

    @property
    def total(self) -> Number:
        """Seconds of the whole step."""
        busy = self.compute + self.optimizer + self.exposed_communication
        return busy + self.bubble + self.host


def run_schedule(
    program: Program,
    times: Mapping[str, Number],
    host: Number = 0.0,
    record: bool = False,
    named: bool = True,
    lost: Mapping[str, Number] | None = None,
    shortest: bool = False,
    busy: Mapping[str, np.ndarray | None] | None = None,
    held_up: Number = 0.0,
) -> Timeline:
    """Run the schedule of a program and sum its time by part.

    Args:
        times: seconds of one call of every kernel and collective, by name.
        host: seconds per step during which the device waits for the host.
        record: keep every event, of every iteration of every loop (for a trace), until there are
            MOST_EVENTS; the times are then numbers.
        named: also sum by the name of the operation, which takes longer: without, kernels that
            follow each other are one.
        lost: share of its rate that a kernel loses beside a collective, by the collective's name.
        shortest: of every conditional the shortest branch runs, not the longest.
        busy: share of its time that each pool of links is busy with a collective, by name: float
            [pools] or [pools, configurations]. One of None wants the links of all others, all of
            its time; None for all: none share links.
        held_up: time that a collective takes beside a kernel over that alone, less one.
    """
    alone = {name: as_float(seconds) for name, seconds in times.items()}
    joins = not (named or record or some(held_up))
    schedule = _joined(program.schedule, alone) if joins else program.schedule
    streams = Streams(alone, record, named, lost or {}, busy, held_up, shortest=shortest)
    streams.block(schedule)
    exposed = streams.by_name("exposed")
    waited = sum(exposed.values(), 0.0)
    return Timeline(
        compute=streams.sum("compute"),
        optimizer=streams.sum("optimizer"),
        exposed_communication=waited,
        bubble=streams.sum("bubble"),
        host=as_float(host) + streams.sum("host"),
        hidden_communication=later(0.0, streams.sum("communication") - waited),
        by_name=streams.by_name("time"),
        exposed_by_name=exposed | streams.by_name("copied"),
        events=tuple(streams.events),
    )


@dataclass
class Streams(Clocks):
    """Runs operations: each kind by the method that is named after its class."""

    shortest: bool = False
    run: Iterator[int] = field(default_factory=count)  # one for all copies

    def block(self, block: Block) -> None:
        """Run operations one after the other."""
        for operation in block:
            if next(self.run) == MOST_RUN:
                raise InputError(
                    f"{operation.name}: more than {MOST_RUN:,} operations would be run one by one: "
                    "of the loops around them no iteration takes as long as the one before"
                )
            getattr(self, type(operation).__name__.lower())(operation)

    def kernel(self, kernel: Kernel) -> None:
        """Run a kernel on the compute stream, or issue an asynchronous one."""
        self._wait_for_host(kernel)
        if kernel.asynchronous:
            self.issue(kernel, "copy")
            return
        part: Part = "optimizer" if kernel.origin.phase == "optimizer" else "compute"
        start = self.clocks["compute"]
        seconds = self.run_on(kernel, "compute", start, self.lost_beside(kernel))
        self.add((part, ""), seconds)
        if some(self.held_up):
            self.hold_up(start, seconds)

    def collective(self, collective: Collective) -> None:
        """Issue a collective, and wait for a synchronous one at once.

        Its time beside collectives of other streams, which are still in flight then, is theirs.
        """
        self._wait_for_host(collective)
        own, name = stream_of(collective), collective.name
        others = {
            stream: flying
            for stream in COMMUNICATION
            if stream != own and (flying := list(self.in_flight[stream]))
        }
        seconds = self.issue(collective, own)
        if self.busy is not None:
            for stream, flying in others.items():
                seconds = seconds + self.share_links(collective, stream, flying)
        for flying in others.values():
            for other in flying:
                seconds = seconds - self.together(other, name)
        for both in product(*others.values()) if len(others) > 1 else ():
            seconds = seconds + self.together(*both, name)
        self.add(("communication", ""), seconds)
        if not collective.asynchronous:
            self.wait(collective)

    def wait(self, named: Wait | Collective) -> None:
        """Hold the compute stream until the operation of that name is over."""
        name, now = named.name, self.clocks["compute"]
        del self.clocks["start", name]
        self.clocks["compute"] = later(now, self.clocks.pop(("end", name)))
        stream = next(stream for stream, flying in self.in_flight.items() if name in flying)
        del self.in_flight[stream][name]
        if stream == "copy":
            self.add(("host", ""), self.clocks["compute"] - now)
        part: Part = "copied" if stream == "copy" else "exposed"
        self.add((part, name * self.named), self.clocks["compute"] - now)

    def loop(self, loop: Loop) -> None:
        """Run iterations until every clock that moves moves alike, then count the rest.

        A configuration that is done stands still in the iterations of the others. Compute, and
        waiting for the host, in the bubble trips of the loop is bubble.
        """
        left, starts = np.trunc(loop.trips)[()], [self.sum(part) for part in BUSY]
        counts = False
        while np.any(left > 0):
            if counts and np.size(left) > FEW and 2 * np.count_nonzero(left > 0) <= left.size:
                self._run_apart(loop, left)
                break
            before, outer, ahead = self.clocks.copy(), self.sums, self.ahead
            self.sums, self.ahead = {}, np.inf
            self.block(loop.body)
            iteration, self.sums = self.sums, outer
            active = left > 0
            both = *self.clocks.values(), *(before.get(c, now) for c, now in self.clocks.items())
            table = np.stack(np.broadcast_arrays(left, *both)[1:])
            now, then = table[: len(self.clocks)], table[len(self.clocks) :]
            counts = not self.recording and before.keys() == self.clocks.keys()
            with np.errstate(invalid="ignore"):  # inf - inf, where an operation never ends
                # Of the host, s that an iteration takes more.
                late = now[ISSUED] - then[ISSUED] - now[COMPUTE] + then[COMPUTE]
                times = sooner(left, self._alike(now, then, late)) if counts else 1
                moved, least = now - then, ROUNDING * now[COMPUTE]
                shift = np.where(abs(moved - moved[COMPUTE]) <= least, moved[COMPUTE], moved)
                reached = np.where(active, now + shift * (times - 1), then)
            for key, seconds in iteration.items():
                self.add(key, where(active, times * seconds, 0.0))
            self.clocks = dict(zip(self.clocks, reached, strict=True))
            self.ahead = self.ahead - (times - 1) * later(0.0, late)
            self.ahead = sooner(ahead, where(active, self.ahead, np.inf))
            left = left - times
        if np.any(loop.bubble_trips):
            share = loop.bubble_trips / later(1, loop.trips)
            for part, start in zip(BUSY, starts, strict=True):
                bubble = (self.sum(part) - start) * share
                self.add((part, ""), -bubble)
                self.add(("bubble", ""), bubble)

    def branch(self, branch: Branch) -> None:
        """Run the block that holds the compute stream longest, in each configuration its own, or
        the mean of all that have a share of the runs.

        A block waits for all that it issues, so no other block would end later (or, of the
        shortest, earlier).
        """
        shares = branch.shares or (1.0,) * len(branch.branches)
        run = [(block, n) for block, n in zip(branch.branches, shares, strict=True) if n]
        after = [self._copy() for _ in run]
        for streams, (block, _) in zip(after, run, strict=True):
            streams.block(block)
        if branch.shares:
            self._be_mean(after, [share for _, share in run])
            return
        ends = [streams.clocks["compute"] for streams in after]
        chosen: Any = reduce(sooner if self.shortest else later, ends)
        level = [abs(end - chosen) <= chosen * ROUNDING for end in ends]  # the first of equal ones
        if not isinstance(chosen, np.ndarray):
            vars(self).update(vars(after[level.index(True)]))
            return
        index = np.argmax(np.stack(np.broadcast_arrays(*level)), axis=0)
        self.clocks = _selected([streams.clocks for streams in after], index)
        self.ahead = reduce(sooner, [streams.ahead for streams in after])
        self.sums = _selected([streams.sums for streams in after], index)

    def _be_mean(self, after: Sequence["Streams"], shares: Sequence[float]) -> None:
        """Go on from the mean of several ends; events are those of the likeliest, in its span."""

        def mean(figures: Sequence[Mapping[Any, Number]]) -> dict[Any, Number]:
            keys = dict.fromkeys(key for each in figures for key in each)
            weighted = lambda key: [
                n * each.get(key, 0.0) for each, n in zip(figures, shares, strict=True)
            ]
            return {key: sum(weighted(key), 0.0) for key in keys}

        begin = self.clocks["compute"]
        likeliest = after[max(range(len(shares)), key=shares.__getitem__)]
        self.clocks = mean([streams.clocks for streams in after])
        self.sums = mean([streams.sums for streams in after])
        self.ahead = reduce(sooner, [streams.ahead for streams in after])
        new = likeliest.events[len(self.events) :]
        if new and (length := likeliest.clocks["compute"] - begin):
            factor = float((self.clocks["compute"] - begin) / length)
            inside = lambda time: float(begin + factor * (time - begin))
            new = [replace(e, start=inside(e.start), end=inside(e.end)) for e in new]
        self.events = [*likeliest.events[: len(self.events)], *new]

    def _run_apart(self, loop: Loop, left: np.ndarray) -> None:
        """Run the iterations that are left of some configurations in arrays of these alone."""
        places, count = np.flatnonzero(left > 0), left.size
        pick = lambda figure: figure[..., places] if np.shape(figure)[-1:] == (count,) else figure
        some_of = lambda figures: {name: pick(figure) for name, figure in figures.items()}
        apart, names = self._copy(), {op.name for op, _ in walk(loop.body)}
        names.update(*self.in_flight.values())
        apart.times = some_of({name: t for name, t in self.times.items() if name in names})
        apart.lost = some_of({name: n for name, n in self.lost.items() if name in names})
        if self.busy is not None:
            wanted = {name: n for name, n in self.busy.items() if name in names}
            apart.busy = {n: b if b is None or b.ndim == 1 else pick(b) for n, b in wanted.items()}
        apart.wanted, apart.held_up, apart.ahead = {}, pick(self.held_up), pick(self.ahead)
        apart.clocks, apart.sums = some_of(self.clocks), some_of(self.sums)
        trips = replace(loop, trips=left[places], bubble_trips=0)
        apart.loop(replace(trips, body=_of_some(loop.body, pick)))

        def whole(own: Number, found: Number) -> np.ndarray:
            every = np.array(np.broadcast_to(own, (count,)), float)
            every[places] = found
            return every

        self.clocks = {clock: whole(self.clocks[clock], n) for clock, n in apart.clocks.items()}
        self.sums.update({key: whole(self.sums.get(key, 0.0), n) for key, n in apart.sums.items()})
        self.ahead = whole(self.ahead, apart.ahead)

    def _wait_for_host(self, operation: Kernel | Collective) -> None:
        """Hold the compute stream until the host has issued an operation that takes time."""
        if not some(operation.issue):
            return
        now, nothing = self.clocks["compute"], np.equal(self.times[operation.name], 0.0)
        begin = self.clocks["issued"]
        if isinstance(operation, Kernel) and operation.late:
            begin = where(nothing, begin, later(begin, now))
        issued = begin + where(nothing, 0.0, operation.issue)
        self.clocks["issued"], self.clocks["compute"] = issued, later(now, issued)
        self.ahead = sooner(self.ahead, now - issued)
        self.add(("host", ""), self.clocks["compute"] - now)

    def _copy(self) -> "Streams":
        other = copy(self)
        for name in ("clocks", "sums", "events"):
            setattr(other, name, getattr(self, name).copy())
        other.in_flight = {stream: flying.copy() for stream, flying in self.in_flight.items()}
        return other

    def _alike(self, now: np.ndarray, then: np.ndarray, late: Number) -> Number:
        """Number of iterations, with the one that has just run, that are alike; 1: not known.

        All clocks that moved have moved alike. One that stood still is left alone if it lies in the
        past: nothing waits for it. So is one that was still ahead of the compute stream at the end,
        for as many iterations as that does not reach it; and the host, while it is ahead: it falls
        back by `late`.

        Args:
            now, then: clocks after the iteration and before it, [clocks, ...].
        """
        moved, least = now - then, ROUNDING * now[COMPUTE]
        slower, past = moved[COMPUTE] - moved, np.maximum(0.0, now - then[COMPUTE])
        is_alike = np.minimum(np.abs(slower), np.abs(moved) + past) <= least
        between, falls = then - now[COMPUTE], slower > 0
        ends = np.where(between > 0, np.inf, 0.0)
        left = np.where(falls, between / np.where(falls, slower, 1.0), ends)
        left = np.where(is_alike, np.inf, np.maximum(0.0, np.floor(left)))
        left[ISSUED] = np.inf
        is_ahead, keeps_up = self.ahead >= -least, late <= least
        host = np.where(keeps_up, np.inf, np.floor(self.ahead / np.where(keeps_up, 1.0, late)))
        host = np.where(is_ahead, host, np.where(np.abs(late) <= least, np.inf, 0.0))
        return 1 + np.minimum(left.min(axis=0), host)[()]


def _of_some(block: Block, pick: Callable[[Number], Number]) -> Block:
    """The block with the trips and the host's seconds of some configurations."""
    ops: list[Operation] = []
    for op in block:
        if isinstance(op, Loop):
            trips, bubble = pick(op.trips), pick(op.bubble_trips)
            op = replace(op, trips=trips, bubble_trips=bubble, body=_of_some(op.body, pick))
        elif isinstance(op, Branch):
            op = replace(op, branches=tuple(_of_some(each, pick) for each in op.branches))
        elif isinstance(op, Kernel | Collective) and np.ndim(op.issue):
            op = replace(op, issue=pick(op.issue))
        ops.append(op)
    return tuple(ops)


def _joined(block: Block, times: dict[str, Number]) -> Block:
    """The block with kernels that follow each other as one, and loops of one as one; times grow.

    The host is never late for them, and nothing begins or ends between them.
    """
    ops: list[Operation] = []
    for op in block:
        if isinstance(op, Loop):
            op = replace(op, body=_joined(op.body, times))
            if len(op.body) == 1 and _is_plain(op.body[0]) and not some(op.bubble_trips):
                name = f"{op.name}: {op.body[0].name}"
                times[name] = np.trunc(op.trips) * times[op.body[0].name]
                op = replace(op.body[0], name=name)
        ops.append(op)
    found: list[Operation] = []
    for (plain, _), run in groupby(ops, lambda op: (_is_plain(op), op.origin.phase == "optimizer")):
        every = list(run)
        if plain and len(every) > 1:
            name = " + ".join(op.name for op in every)
            times[name] = sum(times[op.name] for op in every)
            every = [replace(every[0], name=name)]
        found += every
    return tuple(found)


def _is_plain(op: Operation) -> bool:
    """True for a kernel of the compute stream that the host takes no time for."""
    return isinstance(op, Kernel) and not op.asynchronous and not some(op.issue)


def _selected(choices: Sequence[Mapping[Any, Number]], index: np.ndarray) -> dict[Any, Number]:
    """The figures of the selected choice in each configuration; missing ones are 0."""
    keys = dict.fromkeys(key for choice in choices for key in choice)
    pick = lambda key: [np.where(index == i, c.get(key, 0.0), 0.0) for i, c in enumerate(choices)]
    return {key: sum(pick(key), 0.0) for key in keys}
