"""The pictures of one step: time, streams, memory, kernels below their roof, the cluster."""

from collections.abc import Iterator, Sequence

import numpy as np

from scaling.course.explorer.collectives import Row, level_words, levels_of, members_words, talkers
from scaling.meshes.errors import InputError
from scaling.meshes.levels import levels
from scaling.meshes.units import format_rate, format_time
from scaling.pictures.drawing.bars import stacked_bars
from scaling.pictures.drawing.cluster import Load, cluster_drawing
from scaling.pictures.drawing.memory import memory_curve
from scaling.pictures.drawing.pipeline import pipeline
from scaling.pictures.drawing.roofline import Point, roofline_of_kernels
from scaling.pictures.drawing.streams import Bar, closer_look, whole_step
from scaling.pictures.drawing.timetable import idle_share, timetable
from scaling.pictures.palette import COLOURS
from scaling.program.ir import Kernel
from scaling.report.trace import label
from scaling.run import Run
from scaling.simulate.kernels import computed_flops, peak_rate
from scaling.simulate.memory import ON_DEVICE, fullest_moments, memory_over_time
from scaling.simulate.prediction import Prediction
from scaling.simulate.step import Priced, running_kernels
from scaling.simulate.timeline import Event

TERMS = {  # of the step time, as the legend calls them
    "compute": "compute",
    "optimizer": "optimizer",
    "exposed_communication": "communication",
    "bubble": "bubble",
    "host": "host",
}
PHASES = {"forward": 1, "backward": 0, "remat": 5, "optimizer": 4}  # -> number of the colour
OTHER, COPY = "other compute", "copy"
LILAC = "#b39ddb"  # of both; ours, beside the six colours of the palette
BESIDE, ALONE = "communication beside compute", "communication alone"
KINDS = {phase: COLOURS[number] for phase, number in PHASES.items()} | {
    OTHER: LILAC,
    BESIDE: COLOURS[3],
    ALONE: COLOURS[2],
    COPY: LILAC,
}
STREAMS = {"communication": "collectives", "permute": "permutes", "copy": "copies"}
KERNELS = {"matmul": 0, "grouped": 5, "attention": 3, "fusion": 1, "copy": 4, "custom": 2}
CLOSE = 60  # operations of the compute stream in the closer look
MOMENTS = 280  # of the memory that are drawn: one in two pixels
MOST_PASSES = 1200  # of a pipeline that are drawn one by one
Picture = dict[str, str]


def split_picture(now: Prediction, before: Prediction | None) -> Picture:
    """The parts of the step time; with changes also as it was before."""
    steps = {"as built": before, "changed": now} if before else {"one step": now}
    rows = {
        name: {words: float(getattr(p.time, term)) for term, words in TERMS.items()}
        for name, p in steps.items()
    }
    last = list(rows.values())[-1]
    said = ", ".join(f"{words} {format_time(n)}" for words, n in last.items() if n > 0)
    return _picture(
        "split", "Where the time goes", stacked_bars(rows, format_time), f"Of one step: {said}"
    )


def streams_pictures(priced: Priced, look: float) -> Iterator[Picture]:
    """Timelines of one device: the whole step, and some operations one by one."""
    rows = _rows(priced.timeline.events)
    if "compute" not in rows:
        return
    end = float(max(bar.end for bars in rows.values() for bar in bars))
    waits = sum(b.end - b.start for bars in rows.values() for b in bars if b.kind == ALONE)
    said = f"Streams of one device over {format_time(end)}; communication alone {waits / end:.0%}"
    yield _picture("streams", "What runs when on one device", whole_step(rows, KINDS, end), said)
    begin, until = _window(rows["compute"], look * end)
    title, said = "A closer look", f"{CLOSE} operations; point at one for its name"
    yield _picture("look", title, closer_look(rows, KINDS, begin, until), said)


def stages_picture(run: Run, priced: Priced) -> Iterator[Picture]:
    """The rows of a pipeline's stages, where there are any."""
    stages = int(priced.program.mesh.get("stage", 1))
    microbatches, plan = run.batch.microbatches, run.pipeline
    if stages == 1 or 2 * stages * microbatches * plan.virtual_stages > MOST_PASSES:
        return
    passes = timetable(plan.schedule, stages, microbatches, plan.virtual_stages)
    idle = f"{stages} stages, {microbatches} microbatches, rows {idle_share(passes):.0%} empty"
    title = "Which stage works on which microbatch"
    said = f"{plan.schedule}: {idle}; a backward pass is drawn twice as long as a forward one"
    said += f". The priced bubble: {format_time(priced.timeline.bubble)}"
    yield _picture("stages", title, pipeline(passes), said)


def memory_picture(priced: Priced, now: Prediction) -> Iterator[Picture]:
    """The memory of one device over the step, against its capacity."""
    times, sizes = memory_over_time(priced.memory, priced.timeline.events)
    if not len(times):
        return
    end = float(now.step_time)
    names = [name.replace("_", " ") for name in ON_DEVICE]
    if len(times) > MOMENTS:
        times, sizes = fullest_moments(times, sizes, end, MOMENTS)
    drawn = memory_curve(times, sizes, names, end, now.memory.capacity)
    peak = format_rate(now.memory.peak, "B")
    yield _picture("memory", "Memory of one device", drawn, f"It peaks at {peak}")


def roofline_picture(priced: Priced, dtype: str) -> Iterator[Picture]:
    """Every kernel below the roofline, its area by its share of the kernels' time."""
    chip, by_name = priced.cluster.accelerator, priced.timeline.by_name
    kernels = [kernel for kernel, _ in running_kernels(priced)]
    total = float(sum(by_name[kernel.name] for kernel in kernels))
    try:
        peak = peak_rate(chip, dtype)
    except InputError:
        return
    if not chip.memory_bandwidth or not total:
        return
    points = list(_points(priced, kernels, total))
    rest = 1 - sum(point.share for point in points)
    drawn = roofline_of_kernels(
        peak, chip.memory_bandwidth, points, {k: COLOURS[n] for k, n in KERNELS.items()}
    )
    said = f"{len(points)} kernels below {format_rate(peak, 'FLOP/s')} of {dtype} and "
    said += f"{format_rate(chip.memory_bandwidth)}; {rest:.0%} of their time computes nothing"
    yield _picture("roofline", "Every kernel below its roof", drawn, said)


def cluster_picture(priced: Priced, row: Row | None) -> Picture:
    """The cluster, with the links lit that the chosen collective uses."""
    groups: dict[int, int] = {}
    loads: list[Load] = []
    said = "Nothing is communicated"
    if row is not None:
        groups = talkers(row, priced)
        loaded = levels_of(row, priced)
        inside = {level.name: level.link != "network" for level in levels(priced.cluster)}
        loads = [Load(v.level, not inside.get(v.level, False), level_words(v)) for v in loaded]
        said = "; ".join(f"{load.level}: {load.words}" for load in loads) or "as measured in a node"
        said = f"{row.first.kind} in {members_words(row, priced)}, those with one number. {said}"
    drawn = cluster_drawing(priced.cluster, groups, loads)
    return _picture("cluster", "Links of the chosen collective", drawn, said)


def _picture(name: str, title: str, svg: str, words: str) -> Picture:
    return {"name": name, "title": title, "svg": svg, "words": words}


def _rows(events: Sequence[Event]) -> dict[str, list[Bar]]:
    """Bars by stream: compute by phase, the others by whether anything is computed beside."""
    compute = [e for e in events if e.stream == "compute" and e.end > e.start]
    starts, ends = (np.array([getattr(e, side) for e in compute]) for side in ("start", "end"))
    rows: dict[str, list[Bar]] = {}
    if compute:
        rows["compute"] = [_compute_bar(e) for e in compute]
    for stream, name in STREAMS.items():
        bars = [bar for e in events if e.stream == stream for bar in _parts(e, starts, ends)]
        if bars:
            rows[name] = bars
    return rows


def _compute_bar(event: Event) -> Bar:
    phase = event.operation.origin.phase
    return Bar(event.start, event.end, phase if phase in PHASES else OTHER, _words(event))


def _parts(event: Event, starts: np.ndarray, ends: np.ndarray) -> Iterator[Bar]:
    """An operation beside the compute stream, cut where that begins and ends to work."""
    words = _words(event)
    if event.stream == "copy":
        yield Bar(event.start, event.end, COPY, words)
        return
    now = event.start
    first = int(np.searchsorted(ends, event.start, side="right"))
    for begin, end in zip(starts[first:], ends[first:], strict=True):
        if begin >= event.end:
            break
        if begin > now:
            yield Bar(now, float(begin), ALONE, words)
        yield Bar(max(now, float(begin)), min(float(end), event.end), BESIDE, words)
        now = min(float(end), event.end)
    if event.end > now:
        yield Bar(now, event.end, ALONE, words)


def _words(event: Event) -> str:
    phase = event.operation.origin.phase
    return f"{phase} {label(event.operation)}: {format_time(event.end - event.start)}".strip()


def _window(bars: Sequence[Bar], moment: float) -> tuple[float, float]:
    """First and last second of CLOSE operations around a moment."""
    starts = [bar.start for bar in bars]
    middle = int(np.searchsorted(starts, moment))
    first = max(0, min(middle - CLOSE // 2, len(bars) - CLOSE))
    some = bars[first : first + CLOSE]
    return some[0].start, some[-1].end


def _points(priced: Priced, kernels: Sequence[Kernel], total: float) -> Iterator[Point]:
    for kernel in kernels:
        cost, time = priced.kernels[kernel.name], float(priced.timeline.by_name[kernel.name])
        done = computed_flops(kernel, priced.profile)
        flops = float(done or kernel.vector_flops + kernel.transcendentals)
        if flops and cost.moved and cost.time:
            rate = flops / float(cost.time)
            where = " ".join(filter(None, (kernel.origin.phase, kernel.origin.layer)))
            words = (
                f"{kernel.kind} {kernel.name}, {where or 'origin not known'}: "
                f"{format_rate(rate, 'FLOP/s')}, {time / total:.1%} of the time, "
                f"bound by {cost.bound}"
            )
            yield Point(words, flops / float(cost.moved), rate, time / total, kernel.kind)
