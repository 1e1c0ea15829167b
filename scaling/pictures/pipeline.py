"""A pipeline's step, and layers whose weights are gathered one ahead: who works when.

    gpipe               all forward passes, then all backward passes in reverse
    1f1b, interleaved   fill: forward; steady: one forward, then one backward; drain: backward
                        (`scaling.models.pipeline.one_forward_one_backward`)

Time is counted in forward passes of one stage's layers; a backward pass takes two, as its products
are twice as many. All stages begin an iteration together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, product

import numpy as np

from scaling.meshes.units import format_time
from scaling.models.pipeline.schedule import PipelineSchedule
from scaling.pictures.axes import Scale
from scaling.pictures.palette import BLUE, ORANGE, SKY, VERMILION
from scaling.pictures.rows import Bar, Row, boxes
from scaling.pictures.shapes import Picture

ROW = 28.0, 6.0  # pixels of a stage, and from it to the next
GATHER, PRODUCTS, WAIT = "all-gather of weights", "products", "waits for weights"
BACKWARD = 2  # forward passes that a backward pass takes


@dataclass(frozen=True)
class PipelinePass:
    """One stage runs one part of its layers on one microbatch."""

    stage: int
    begin: Fraction
    length: Fraction
    microbatch: int
    part: int  # virtual stage
    forward: bool

    @property
    def end(self) -> Fraction:
        return self.begin + self.length


def timetable(
    schedule: str, stages: int, microbatches: int, parts: int = 1
) -> tuple[PipelinePass, ...]:
    """Return all passes of a step.

    Args:
        schedule: "gpipe", or any other, which is drawn as one forward and one backward in turn.
        parts: virtual stages of a stage; more than 1 not for "gpipe", and with microbatches that
            are a multiple of `stages`.
    """
    if schedule == "gpipe":
        return tuple(_all_forward_first(stages, microbatches))
    return tuple(_in_turn(PipelineSchedule(stages, parts, microbatches)))


def idle_share(passes: tuple[PipelinePass, ...]) -> float:
    """Return the share of all stages' time in which they run nothing."""
    rows = len({one.stage for one in passes})
    return float(1 - sum(one.length for one in passes) / (rows * max(one.end for one in passes)))


def held(passes: tuple[PipelinePass, ...]) -> Fraction:
    """Return the most microbatches of which a stage keeps what it saved, a part as a fraction."""
    parts = 1 + max(one.part for one in passes)
    most = 0
    for stage in {one.stage for one in passes}:
        own = [one for one in passes if one.stage == stage]
        events = sorted((one.begin, 1) if one.forward else (one.end, -1) for one in own)
        most = max(most, *accumulate(change for _, change in events))  # what is free goes first
    return Fraction(most, parts)


def _all_forward_first(stages: int, microbatches: int) -> Iterator[PipelinePass]:
    """Forward passes of one microbatch after the other, and the same backward in reverse."""
    one, way_back = Fraction(1), Fraction(BACKWARD)
    end = (microbatches + stages - 1) * (one + way_back)
    for stage, microbatch in product(range(stages), range(microbatches)):
        begin = stage + microbatch
        yield PipelinePass(stage, begin * one, one, microbatch, 0, True)
        yield PipelinePass(stage, end - (begin + 1) * way_back, way_back, microbatch, 0, False)


def _in_turn(schedule: PipelineSchedule) -> Iterator[PipelinePass]:
    """A forward pass begins an iteration of the fill and the steady ones, but not of the drain."""
    unit, fill, both = Fraction(1, schedule.virtual_stages), schedule.lap - 1, schedule.iterations
    way_back = BACKWARD * unit
    lengths = [unit] * fill + [unit + way_back] * (both - fill) + [way_back] * fill
    begins = list(accumulate(lengths, initial=Fraction(0)))
    which = lambda index: (
        int(schedule.microbatch_of(index)),
        int(schedule.virtual_stage_of(index)),
    )
    for stage, index in product(range(schedule.stages), np.arange(schedule.passes)):
        yield PipelinePass(stage, begins[stage + index], unit, *which(index), True)
        iteration = schedule.turns - schedule.passes - stage + index
        begin = begins[iteration] + unit * int(iteration < both)
        yield PipelinePass(stage, begin, way_back, *which(schedule.forward_of(index)), False)


def pipeline(passes: Sequence[PipelinePass], title: str = "") -> Picture:
    """Return a row for each stage, a box for each pass; where it is empty, the stage has no work.

    The box of a pass has the number of its microbatch.
    """
    parts = 1 + max(one.part for one in passes)
    of_part = lambda part: "" if parts == 1 else f", part {part + 1}"
    ways = {"forward": (BLUE, SKY), "backward": (ORANGE, VERMILION)}
    colours = {f"{w}{of_part(i)}": c[i % 2] for w, c in ways.items() for i in range(parts)}
    bars: dict[str, list[Bar]] = {f"stage {i}": [] for i in range(1 + max(p.stage for p in passes))}
    for one in passes:
        way, number = "forward" if one.forward else "backward", str(one.microbatch + 1)
        words = f"microbatch {number} {way} on stage {one.stage}, part {one.part + 1}"
        bar = Bar(float(one.begin), float(one.end), f"{way}{of_part(one.part)}", words, number)
        bars[f"stage {one.stage}"].append(bar)
    rows = {name: Row(own, *ROW) for name, own in bars.items()}
    end = float(max(one.end for one in passes))
    return boxes(rows, colours, Scale(0.0, end, "time \u2192", ticks=()), title)


def overlap(gather: float, products: float, layers: int = 5) -> Picture:
    """Return two rows, links and products, of `layers` equal layers over time.

    The gather of a layer begins when the products of the layer before do: one is held ahead.

    In s: `gather` of the weights of a layer, `products` of a layer.
    """
    links: list[Bar] = []
    math: list[Bar] = []
    free = 0.0  # when the products of the layer before end
    for number, (sent, begin) in enumerate(schedule(gather, products, layers), 1):
        links.append(Bar(sent, sent + gather, GATHER, f"gather of layer {number}"))
        if begin > free:
            math.append(Bar(free, begin, WAIT, "waits for weights"))
        free = begin + products
        math.append(Bar(begin, free, PRODUCTS, f"products of layer {number}"))
    rows = {"links": Row(links, *ROW), "products": Row(math, *ROW)}
    colours = {GATHER: SKY, PRODUCTS: BLUE, WAIT: ORANGE}
    scale = Scale(0.0, free, show=format_time)
    return boxes(rows, colours, scale, "gathers beside products")


def schedule(gather: float, products: float, layers: int) -> Iterator[tuple[float, float]]:
    """Return when the gather of each layer begins, and when its products do, in s."""
    sent, begin = 0.0, gather
    for _ in range(layers):
        yield sent, begin
        sent = max(sent + gather, begin)
        begin = max(sent + gather, begin + products)
