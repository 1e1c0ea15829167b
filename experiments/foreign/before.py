"""The collection with an earlier commit beside what it is now.

`before.json` of the results has "what", how it was made, and "programs": name, judgement, glue,
peak_ratio and what was said.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from experiments.foreign.result import MEMORY_GOAL, Priced
from experiments.foreign.table import counted, ratio, within
from scaling.report.formatting import columns

HEADS = ["program", "before", "glue", "memory", "now", "glue", "memory"]


def part(document: Mapping[str, Any], rows: Sequence[Priced]) -> str:
    """The part of the page on an earlier commit: counts, medians, a line for each program."""
    now = {row.name: row for row in rows}
    both = [(then, now[then["name"]]) for then in document["programs"] if then["name"] in now]
    if not both:
        return ""
    before = _summary([(then["judgement"], then["glue"], then["peak_ratio"]) for then, _ in both])
    today = _summary([(row.judgement, row.glue, row.peak_ratio) for _, row in both])
    lines = [
        [
            *(then["name"], then["judgement"], str(then["glue"]), ratio(then["peak_ratio"])),
            *(row.judgement, str(row.glue), ratio(row.peak_ratio)),
        ]
        for then, row in both
    ]
    table = "\n".join(columns([HEADS, *lines], left=(0, 1, 4)))
    return (
        f"## Before and now\n\n{document['what']}\n\n- Before: {before}\n- Now: {today}\n\n"
        f"```\n{table}\n```\n\n"
    )


def _summary(programs: Sequence[tuple[str, int, float | None]]) -> str:
    judged, glue, peaks = zip(*programs, strict=True)
    known = [peak for peak in peaks if peak]
    return (
        f"{counted(judged)}; glue {median(glue):g} lines in the median, {max(glue)} at most; "
        f"peak memory of {within(known, MEMORY_GOAL)}."
    )
