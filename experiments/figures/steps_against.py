"""Predicted training steps against measured ones, and closed forms against compiled programs."""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from statistics import median
from typing import Any

from experiments.figures.against import points
from experiments.published.fit_software import priced
from experiments.published.training import FOLDER, measured_runs, part_of
from scaling.meshes.errors import InputError
from scaling.meshes.units import format_size
from scaling.pictures.axes import Scale
from scaling.pictures.bars import dots
from scaling.pictures.curves import ScatterPoint, scatter
from scaling.pictures.legend import Look
from scaling.pictures.palette import BLUE, VERMILION
from scaling.pictures.shapes import Picture

RESULTS = FOLDER.parent / "results"
VALIDATED = RESULTS / "2026-11-28-validate" / "README.md"
FRONT_ENDS = RESULTS / "2026-11-29-front-ends" / "front_ends.json"
TESTBED = RESULTS / "2026-11-23-testbed-steps" / "results.json"
HOST = RESULTS / "2026-11-22-host-check-3" / "results.json"
SECONDS = {"s": 1.0, "ms": 1e-3}
# A line of the table of steps that XLA compiled: run ... measured, compiled step, error, in range
COMPILED = re.compile(
    r"^(M\w|T)\S+  .*?  ([\d.]+) (m?s) +([\d.]+) (m?s) +[+-]\d+% +\w+$", re.MULTILINE
)
KINDS = {
    "T": "dense, recipe known",
    "ML": "dense, recipe not known",
    **dict.fromkeys(("MB", "MH", "MG", "MC"), "with experts"),
}
# A line of the tables by source: source, n, median, mean, bias, worst, in range, refused, naive
SOURCE = re.compile(
    r"^(\S.*?) +(\d+) +([\d.]+)% +[\d.]+% +\S+ +\S+ +(\d+)% +\d+ +([\d.]+)%$", re.MULTILINE
)
WORDS, FORMS = ("measured", "predicted"), ("compiled program", "closed form")
RARE = 5  # runs of a source below which it counts with the others of the picture


def xla_steps() -> Picture:
    """Published steps of JAX programs, and what our compiled step of their shape is priced at."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for run, m, of_m, p, of_p in COMPILED.findall(VALIDATED.read_text(encoding="utf-8")):
        found[KINDS[run]].append((float(m) * SECONDS[of_m], float(p) * SECONDS[of_p]))
    return scatter(_all(found), "Steps that XLA compiled for H100, B200 and GB200", WORDS)


def sources() -> Picture:
    """The median error of each source: runs that nothing was fitted on, and a typical MFU's."""
    text = VALIDATED.read_text(encoding="utf-8")
    first, second = text.split("## Rows of each source")
    unfitted = {row[0]: row for row in SOURCE.findall(first)}
    left_out = {row[0]: row for row in SOURCE.findall(second.split("## Memory")[0])}
    looks: dict[str, Look] = {}
    rows: dict[str, dict[str, float]] = {}
    for what, found, colour, mark in (
        ("runs that no constant was fitted on", unfitted, BLUE, "o"),
        ("constants fitted without the source", left_out, VERMILION, "D"),
    ):
        naive = f"a typical MFU, {'these runs' if found is unfitted else 'all runs of the source'}"
        looks |= {what: Look(colour, mark), naive: Look(colour, "|")}
        for name, row in found.items():
            rows.setdefault(name, {}).update({what: float(row[2]), naive: float(row[4])})
    rows = dict(sorted(rows.items(), key=lambda item: item[0].lower()))
    most = max(error for row in rows.values() for error in row.values())
    scale = Scale(0, 1.05 * most, "median error of the step time, %")
    return dots(rows, looks, scale, title="Median error of each source of published steps")


def pipelines() -> Picture:
    """Published steps over stages that no constant was fitted on, in closed form."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in measured_runs():
        if row.run["mesh"].get("stage", 1) > 1 and part_of(row) == "left":
            try:
                time = float(priced(row).timeline.total)
            except InputError:
                continue
            found[row.source.replace(" performance summary", "")].append((row.step_time, time))
    few = [name for name, pairs in found.items() if len(pairs) < RARE]
    for name in few:
        found["others"] += found.pop(name)
    return scatter(_all(found), "Published steps over pipeline stages, none fitted", WORDS)


def front_ends() -> Picture:
    """Step times in closed form against those of the compiled programs."""
    title = "Step times of the trainer on 8 to 1,024 GPUs"
    return scatter(_front_ends("time"), title, FORMS)


def memory() -> Picture:
    """Peak memory in closed form against that of the compiled programs."""
    title = "Peak memory of the trainer's step"
    return scatter(_front_ends("memory"), title, FORMS, format_size)


def _front_ends(what: str) -> list[ScatterPoint]:
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for case in json.loads(FRONT_ENDS.read_text(encoding="utf-8"))["cases"]:
        compiled = case["compiled"][what]
        size = sum(compiled.values()) if isinstance(compiled, dict) else compiled
        mesh = case["case"]["mesh"]
        kind = next(
            (k for k in ("stage", "expert", "context", "tensor") if k in mesh), "fsdp, data"
        )
        found[kind].append((size, size * (1 + case["errors"][what])))
    return _all({f"over {kind}": pairs for kind, pairs in found.items()})


def _all(found: Mapping[str, list[tuple[float, float]]]) -> list[ScatterPoint]:
    return [point for name, pairs in sorted(found.items()) for point in points(name, pairs)]


def testbed() -> Picture:
    """Steps across hosts over links of known rate, with their ranges."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for case in json.loads(TESTBED.read_text(encoding="utf-8"))["cases"]:
        found[case["hosts"]].append(case)
    every = [
        point
        for hosts, cases in found.items()
        for point in points(
            f"{hosts} hosts",
            [(median(case["measured"]), case["predicted"]) for case in cases],
            [(case["low"], case["high"]) for case in cases],
        )
    ]
    return scatter(every, "Training steps over links of 0.2 to 1 Gbit/s")


def host() -> Picture:
    """Steps on eight fake devices of one machine, and FLOPs over the matmul rate beside."""
    results = json.loads(HOST.read_text(encoding="utf-8"))["results"]
    found = {
        "predicted": [(median(case["measured"]), case["predicted"]) for case in results],
        "FLOPs over the matmul rate": [
            (median(case["measured"]), case["naive"]) for case in results
        ],
    }
    return scatter(_all(found), "Training steps on eight fake devices of a CPU", WORDS)
