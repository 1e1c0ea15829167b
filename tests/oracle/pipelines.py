"""A pipeline event by event: every stage runs its passes in the order of its schedule, each as soon
as its input is there.

    pass (kind, microbatch, part)    forward F, backward B (input gradients), weight gradients W
    F waits for the F of the part before, B for the B of the part after (of the last part: its F)
    W waits for the B of its own part

A stage has the parts v S + s of the layers, v its virtual stages.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from scaling.models.pipeline.schedule import PipelineSchedule

Pass = tuple[str, int, int]  # kind, microbatch, part of the layers
DualPass = tuple[str, int, int, int]  # kind, direction, microbatch of it, stage
P = TypeVar("P", Pass, DualPass)


@dataclass(frozen=True)
class Pipeline:
    """Sizes of a pipeline, and seconds of one pass of a whole stage."""

    stages: int
    microbatches: int
    virtual_stages: int = 1
    forward: float = 1.0
    backward: float = 1.0
    weights: float = 0.0  # 0: part of the backward pass

    @property
    def parts(self) -> int:
        return self.stages * self.virtual_stages

    def seconds(self, kind: str) -> float:
        whole = {"F": self.forward, "B": self.backward, "W": self.weights}[kind]
        return whole / self.virtual_stages

    def inputs(self, step: Pass) -> list[Pass]:
        """Passes that must be over before."""
        kind, microbatch, part = step
        if kind == "W":
            return [("B", microbatch, part)]
        if kind == "F":
            return [("F", microbatch, part - 1)] if part else []
        last = part == self.parts - 1
        return [("F", microbatch, part), *([] if last else [("B", microbatch, part + 1)])]


def gpipe(p: Pipeline, stage: int) -> list[Pass]:
    """All forward passes, then all backward passes in reverse."""
    forward = [("F", m, stage) for m in range(p.microbatches)]
    return forward + [("B", m, stage) for m in reversed(range(p.microbatches))]


def one_forward_one_backward(p: Pipeline, stage: int) -> list[Pass]:
    """As many forward passes as stages follow, then one of each in turn (arXiv 1806.03377)."""
    return interleaved(p, stage)


def interleaved(p: Pipeline, stage: int) -> list[Pass]:
    """The same for virtual stages, microbatches in groups of S (arXiv 2104.04473, section 2.2)."""
    S, V, M = p.stages, p.virtual_stages, p.microbatches
    chunk = lambda n: n // S % V if V > 1 else 0
    number = lambda n: n // (S * V) * S + n % S if V > 1 else n
    total = M * V
    warm = min(total, S - stage - 1 if V == 1 else 2 * (S - stage - 1) + (V - 1) * S)
    forward = [("F", number(n), chunk(n) * S + stage) for n in range(total)]
    backward = [("B", number(n), (V - 1 - chunk(n)) * S + stage) for n in range(total)]
    found = forward[:warm]
    for n in range(total - warm):
        found += [forward[warm + n], backward[n]]
    return found + backward[total - warm :]


def run_in_order(p: Pipeline, order: Callable[[Pipeline, int], list[Pass]]) -> tuple[float, float]:
    """Seconds until the last pass is over, and those that stage 0 stands still."""
    orders = [order(p, stage) for stage in range(p.stages)]
    over: dict[Pass, float] = {}
    clocks, done = [0.0] * p.stages, [0] * p.stages
    while any(n < len(steps) for n, steps in zip(done, orders, strict=True)):
        moved = False
        for stage, steps in enumerate(orders):
            while done[stage] < len(steps):
                step = steps[done[stage]]
                if any(before not in over for before in p.inputs(step)):
                    break
                start = max([clocks[stage], *(over[before] for before in p.inputs(step))])
                over[step] = clocks[stage] = start + p.seconds(step[0])
                done[stage] += 1
                moved = True
        assert moved, "the orders wait for each other"
    return _result(p, over, orders[0])


def run_zero_bubble(p: Pipeline) -> tuple[float, float]:
    """ZB-H1 (arXiv 2401.10241, section 2.2): 1F1B whose weight gradients fill what was idle.

    A stage that is free takes a backward pass, else a forward pass if no more microbatches are in
    flight than in 1F1B, else a weight gradient.
    """
    over: dict[Pass, float] = {}
    todo = [
        {(kind, m, stage) for kind in "BFW" for m in range(p.microbatches)}
        for stage in range(p.stages)
    ]
    clocks, steps = [0.0] * p.stages, [[] for _ in range(p.stages)]
    while any(todo):
        now = min(clock for clock, left in zip(clocks, todo, strict=True) if left)
        free = [s for s in range(p.stages) if todo[s] and clocks[s] == now]
        chosen = [(s, step) for s in free if (step := _next(p, s, todo[s], steps[s], over, now))]
        if not chosen:  # until another stage is done with something
            soon = min(end for end in (*over.values(), *clocks) if end > now)
            for stage in free:
                clocks[stage] = soon
        for stage, step in chosen[:1]:
            todo[stage].remove(step)
            steps[stage].append(step)
            over[step] = clocks[stage] = now + p.seconds(step[0])
    return _result(p, over, steps[0])


def dualpipe(p: Pipeline, rank: int) -> list[tuple[str, list[DualPass]]]:
    """The order of a rank (deepseek-ai/DualPipe, dualpipe/dualpipe.py @ 3da1bbe, step).

    Half of the microbatches come from either end. Passes are named by kind, direction, number and
    stage; FB: two of them, side by side; b: a backward pass without its gradients of weights, W.
    """
    half, near = p.stages // 2, min(rank, p.stages - 1 - rank)
    counts = {"F": [0, 0], "B": [0, 0]}
    found: list[tuple[str, list[DualPass]]] = []

    def add(kind: str, *passes: tuple[str, int]) -> None:
        made = []
        for one, phase in passes:
            direction = phase ^ (rank >= half)
            stage = p.stages - 1 - near if phase else near
            made.append((one, direction, counts[one][phase], stage))
            counts[one][phase] += 1
        found.append((kind, made))

    def both(ahead: int) -> None:
        add("FB", ("F", ahead), ("B", 1 - ahead))

    for _ in range(2 * (half - near - 1)):
        add("F", ("F", 0))
    for _ in range(near + 1):
        add("F", ("F", 0))
        add("F", ("F", 1))
    for _ in range(half - near - 1):
        add("b", ("B", 1))
        add("W")
        add("F", ("F", 1))
    for i in range(p.microbatches // 2 - p.stages + near + 1):
        if i == 0 and near == half - 1:
            add("F", ("F", 0))
            add("B", ("B", 1))
        else:
            both(0)
        both(1)
    for _ in range(half - near - 1):
        add("B", ("B", 1))
        both(1)
    for i in range(near + 1):
        middle = (near + 1) // 2
        add("b" if i > middle or (i == middle and near % 2) else "B", ("B", 1))
        add("b" if i >= middle else "B", ("B", 0))
    for _ in range(half - near - 1):
        add("W")
        add("b", ("B", 0))
    return found + [("W", [])] * (near + 1)


def run_dualpipe(p: Pipeline, pair: float) -> float:
    """Seconds of a step whose forward and backward pass side by side take `pair`."""
    times = {"F": p.forward, "b": p.backward, "B": p.backward + p.weights, "W": p.weights}
    orders = [
        [(passes, (times | {"FB": pair})[kind]) for kind, passes in dualpipe(p, rank)]
        for rank in range(p.stages)
    ]
    every = [step for order in orders for passes, _ in order for step in passes]
    assert len({step for step in every if step[0] in "FB"}) == 2 * p.microbatches * p.stages
    return _replay(orders, lambda step: _needed(p, step))


def _replay(orders: list[list[tuple[list[P], float]]], inputs: Callable[[P], list[P]]) -> float:
    """Seconds until all devices are through with their passes, some of them side by side, each as
    soon as what it takes from elsewhere is there: (passes, seconds) in the order of each device."""
    over: dict[P, float] = {}
    clocks, done = [0.0] * len(orders), [0] * len(orders)
    while any(n < len(steps) for n, steps in zip(done, orders, strict=True)):
        before = sum(done)
        for rank, steps in enumerate(orders):
            while done[rank] < len(steps):
                passes, seconds = steps[done[rank]]
                needed = {one for step in passes for one in inputs(step)} - {*passes}
                if not needed <= over.keys():
                    break
                clocks[rank] = max([clocks[rank], *(over[one] for one in needed)]) + seconds
                over |= dict.fromkeys(passes, clocks[rank])
                done[rank] += 1
        assert sum(done) > before, "the orders wait for each other"
    return max(clocks)


def _needed(p: Pipeline, step: DualPass) -> list[DualPass]:
    kind, direction, number, stage = step
    if kind == "F":
        return [("F", direction, number, stage - 1)] if stage else []
    later = [("B", direction, number, stage + 1)] if stage < p.stages - 1 else []
    return [("F", direction, number, stage), *later]


def run_pairs(p: Pipeline, pair: float) -> float:
    """Seconds of interleaved 1F1B (of one part: 1F1B) in which each backward pass has the forward
    pass of a later microbatch beside it, the two together `pair` of a whole stage.

    A microbatch is as many pairs on its way there and back, so as many more begin before the first
    (NVIDIA/Megatron-LM, core/pipeline_parallel/schedules.py: num_warmup_microbatches, one more for
    overlap_moe_expert_parallel_comm).
    """
    one = lambda step: ([step], p.seconds(step[0]))
    orders = []
    for stage in range(p.stages):
        passes = interleaved(p, stage)
        ahead, back = ([step for step in passes if step[0] == kind] for kind in "FB")
        warm = min(len(ahead), 2 * (p.stages - stage - 1) + (p.virtual_stages - 1) * p.stages + 1)
        pairs = [([*two], pair / p.virtual_stages) for two in zip(ahead[warm:], back, strict=False)]
        left = back[len(ahead) - warm :]
        orders.append([*map(one, ahead[:warm]), *pairs, *map(one, left)])
    return _replay(orders, p.inputs)


def run_iterations(p: Pipeline, schedule: PipelineSchedule) -> tuple[float, float]:
    """1F1B in lockstep: seconds of all iterations, each as long as a forward pass, a backward pass
    or both, and those that stage 0 stands still."""
    over: dict[Pass, int] = {}
    seconds = 0.0
    for iteration in range(schedule.turns):
        kinds = set()
        for stage in range(p.stages):
            ahead = np.int64(iteration - stage)
            if schedule.is_busy(ahead):
                kinds.add("F")
                _run(p, over, ("F", *_pass(schedule, ahead, stage)), iteration)
            back = np.int64(iteration - schedule.turns + schedule.passes + stage)
            if schedule.is_busy(back):
                kinds.add("B")
                _run(p, over, ("B", *_pass(schedule, schedule.forward_of(back), stage)), iteration)
        seconds += sum(map(p.seconds, kinds))
    assert len(over) == 2 * p.microbatches * p.parts
    return seconds, seconds - p.microbatches * (p.forward + p.backward)


def _pass(schedule: PipelineSchedule, index: np.int64, stage: int) -> tuple[int, int]:
    part = int(schedule.virtual_stage_of(index)) * schedule.stages + stage
    return int(schedule.microbatch_of(index)), part


def _run(p: Pipeline, over: dict[Pass, int], step: Pass, iteration: int) -> None:
    """A backward pass takes what a forward pass of the same iteration has made."""
    assert step not in over
    for kind, *which in p.inputs(step):
        same = kind == "F" and step[0] == "B"
        assert over[kind, *which] < iteration + same
    over[step] = iteration


def _next(
    p: Pipeline, stage: int, todo: set[Pass], done: list[Pass], over: dict[Pass, float], now: float
) -> Pass | None:
    """The pass that a free stage takes; None if it has to wait."""
    for step in sorted(todo, key=lambda step: ("BFW".index(step[0]), step[1])):
        is_ready = all(over.get(before, now + 1) <= now for before in p.inputs(step))
        if is_ready and (step[0] != "F" or _in_flight(done) < p.stages - stage):
            return step
    return None


def _in_flight(steps: list[Pass]) -> int:
    return sum((kind == "F") - (kind == "B") for kind, _, _ in steps)


def _result(p: Pipeline, over: dict[Pass, float], first: list[Pass]) -> tuple[float, float]:
    busy = sum(p.seconds(kind) for kind, _, _ in first)
    return max(over.values()), max(over.values()) - busy
