"""The pictures of one step: time, streams, memory, kernels below their roof, the cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from scaling.course.explorer.collectives import (
    CollectiveRow,
    level_words,
    levels_of,
    members_words,
    talkers,
)
from scaling.course.language import said, svg_said, t
from scaling.meshes.errors import InputError
from scaling.meshes.units import format_memory, format_rate, format_time
from scaling.pictures.axes import Scale
from scaling.pictures.bars import TERMS, step_bars
from scaling.pictures.cluster import cluster_levels
from scaling.pictures.palette import BLACK, PURPLE, VERMILION
from scaling.pictures.pipeline import idle_share, pipeline, timetable
from scaling.pictures.roofline import kernel_dots, roofs, step_roofline
from scaling.pictures.rows import Bar, Row, boxes, shares
from scaling.pictures.shapes import Picture
from scaling.pictures.svg import svg_text
from scaling.pictures.timeline import COLOURS, PHASES, step_memory
from scaling.report.trace import label
from scaling.run import Run
from scaling.simulate.prediction import Prediction
from scaling.simulate.side_by_side import Event
from scaling.simulate.step import Priced

COPY, BESIDE, ALONE = "copy", "communication beside compute", "communication alone"
KINDS = {kind: COLOURS[kind] for kind in PHASES.values()}
KINDS |= {BESIDE: PURPLE, ALONE: VERMILION, COPY: BLACK}
STREAMS = {"communication": "collectives", "permute": "permutes", "copy": "copies"}
CLOSE = 60  # operations of the compute stream in the closer look
MOST_PASSES = 1200  # of a pipeline that are drawn one by one
Figure = dict[str, str]  # name, title, svg and words: what a page shows


def split_picture(now: Prediction, before: Prediction | None) -> Figure:
    """The parts of the step time; with changes also as it was before."""
    steps = {t("as built"): before, t("changed"): now} if before else {t("one step"): now}
    terms = {words: float(getattr(now.time, term)) for term, (words, _) in TERMS.items()}
    shown = ", ".join(f"{said(words)} {format_time(n)}" for words, n in terms.items() if n > 0)
    return _figure(
        "split", step_bars(steps, t("Where the time goes")), t("Of one step: {parts}", parts=shown)
    )


def streams_pictures(priced: Priced, look: float) -> Iterator[Figure]:
    """Timelines of one device: the whole step, and some operations one by one."""
    rows = _rows(priced.timeline.events)
    if "compute" not in rows:
        return
    end = float(max(bar.end for bars in rows.values() for bar in bars))
    waits = sum(b.end - b.start for bars in rows.values() for b in bars if b.kind == ALONE)
    said = t(
        "Streams of one device over {time}; communication alone {share:.0%}",
        time=format_time(end),
        share=waits / end,
    )
    drawn = {name: Row(bars) for name, bars in rows.items()}
    yield _figure("streams", shares(drawn, KINDS, end, t("What runs when on one device")), said)
    begin, until = _window(rows["compute"], look * end)
    said = t(
        "{n} operations from {time}; point at one for its name", n=CLOSE, time=format_time(begin)
    )
    near = {}
    for name, bars in rows.items():
        seen = [bar for bar in bars if begin < bar.end and bar.start < until]
        near[name] = Row([replace(b, start=b.start - begin, end=b.end - begin) for b in seen])
    scale = Scale(0.0, until - begin, show=format_time)
    yield _figure("look", boxes(near, KINDS, scale, t("A closer look")), said)


def stages_picture(run: Run, priced: Priced) -> Iterator[Figure]:
    """The rows of a pipeline's stages, where there are any."""
    stages = int(priced.program.mesh.get("stage", 1))
    microbatches, plan = run.batch.microbatches, run.pipeline
    if stages == 1 or 2 * stages * microbatches * plan.virtual_stages > MOST_PASSES:
        return
    passes = timetable(plan.schedule, stages, microbatches, plan.virtual_stages)
    said = t(
        "{schedule}: {stages} stages, {microbatches} microbatches, rows {idle:.0%} empty; a "
        "backward pass is drawn twice as long as a forward one. The priced bubble: {bubble}",
        schedule=plan.schedule,
        stages=stages,
        microbatches=microbatches,
        idle=idle_share(passes),
        bubble=format_time(priced.timeline.bubble),
    )
    yield _figure("stages", pipeline(passes, t("Which stage works on which microbatch")), said)


def memory_picture(priced: Priced, now: Prediction) -> Iterator[Figure]:
    """The memory of one device over the step, against its capacity."""
    if priced.timeline.events:
        drawn = step_memory(priced, now.memory.capacity, t("Memory of one device"))
        yield _figure("memory", drawn, t("It peaks at {size}", size=format_memory(now.memory.peak)))


def roofline_picture(priced: Priced) -> Iterator[Figure]:
    """Every kernel below the roofline, its area by its share of the kernels' time."""
    try:
        drawn = step_roofline(priced, t("Every kernel below its roof"))
        dtype, peak, bandwidth = roofs(priced)
    except InputError:
        return
    dots = kernel_dots(priced)
    rest = 1 - sum(dot.share or 0.0 for dot in dots)
    said = t(
        "{n} kernels below {peak} of {dtype} and {bandwidth}; {rest:.0%} of their time computes "
        "nothing",
        n=len(dots),
        peak=format_rate(peak, "FLOP/s"),
        dtype=dtype,
        bandwidth=format_rate(bandwidth),
        rest=rest,
    )
    yield _figure("roofline", drawn, said)


def cluster_picture(priced: Priced, row: CollectiveRow | None) -> Figure:
    """The cluster, with the links lit that the chosen collective uses."""
    groups: dict[int, int] = {}
    loads: dict[str, str] = {}
    said = t("Nothing is communicated")
    if row is not None:
        groups = talkers(row, priced)
        loads = {load.level: level_words(load) for load in levels_of(row, priced)}
        said = "; ".join(f"{t(level)}: {words}" for level, words in loads.items())
        said = said or t("as measured in a node")
        alike = t(", those with one letter") if len(set(groups.values())) > 1 else ""
        fields = {"kind": row.first.kind, "groups": members_words(row, priced) + alike}
        said = t("{kind} in {groups}. {links}", **fields, links=said)
    title = t("Links of the chosen collective")
    return _figure("cluster", cluster_levels(priced.cluster, title, groups, loads), said)


def _figure(name: str, drawn: Picture, words: str) -> Figure:
    return {"name": name, "title": drawn.title, "svg": svg_said(svg_text(drawn)), "words": words}


def _rows(events: Sequence[Event]) -> dict[str, list[Bar]]:
    """Bars by stream: compute by phase, the others by whether anything is computed beside."""
    compute = [e for e in events if e.stream == "compute" and e.end > e.start]
    starts, ends = (np.array([getattr(e, side) for e in compute]) for side in ("start", "end"))
    rows: dict[str, list[Bar]] = {}
    if compute:
        kind = lambda event: PHASES.get(event.operation.origin.phase, PHASES[""])
        rows["compute"] = [Bar(e.start, e.end, kind(e), _words(e)) for e in compute]
    for stream, name in STREAMS.items():
        bars = [bar for e in events if e.stream == stream for bar in _parts(e, starts, ends)]
        if bars:
            rows[name] = bars
    return rows


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
