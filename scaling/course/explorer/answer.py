"""One step, priced with some figures changed: numbers, tables and pictures for a page.

    stored program -> sc.predict(..., source="stored") -> what_if(changes) -> what a page shows

Every number is that of `scaling predict` with the command that stands beside it.
"""

import math
import shlex
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from scaling.api.predict import predict
from scaling.api.pricing import price_program
from scaling.api.result import PredictionResult
from scaling.course.explorer.collectives import chosen_row, details, rows_of
from scaling.course.explorer.pictures import (
    cluster_picture,
    memory_picture,
    roofline_picture,
    split_picture,
    stages_picture,
    streams_pictures,
)
from scaling.course.explorer.request import (
    CALIBRATION,
    ExplorerRequest,
    by_key,
    profile_of_text,
    request_of,
)
from scaling.course.language import said, t
from scaling.meshes.errors import InputError
from scaling.meshes.units import format_memory, format_range, format_time, percent, three_digits
from scaling.report.prediction import verdict

KEPT = 32  # predictions of programs as built: a reader goes to and fro
LINT = "--what-if: "  # how warnings begin that a changed figure is implausible: it is meant
CALIBRATION_FILE = "calibration.json"  # how the command calls the reader's file


def answer(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step as a page shows it.

    Args:
        given: "program", the key of a stored one; a factor for any figure of `what_if`;
            "calibration", the JSON of `scaling calibrate`; "collective", the name of a call whose
            details are wanted; "look", from 0 to 1, where the closer look is.

    Raises:
        InputError: as `request_of`, or a figure that the cluster lacks.
    """
    asked = request_of(given)
    before, now = _priced(asked)
    priced = price_program(now.pricing, record=True)
    rows = rows_of(priced)
    chosen = chosen_row(rows, asked.collective)
    run = now.pricing.run
    assert run is not None  # a stored program is that of a run
    return {
        "program": asked.stored.key,
        "title": _title(now, asked),
        "command": command(asked),
        "changes": list(asked.changes),
        "step": _step(now, before if asked.changes else None),
        "figures": _figures(now),
        "memory": _memory(now),
        "bottleneck": said(now.bottleneck),
        "warnings": [text for text in now.warnings if not text.startswith(LINT)],
        "collectives": [row.to_dict() for row in rows],
        "chosen": details(chosen, priced) if chosen else None,
        "pictures": [
            split_picture(now, before if asked.changes else None),
            *stages_picture(run, priced),
            *streams_pictures(priced, asked.look),
            *memory_picture(priced, now),
            *roofline_picture(priced),
            cluster_picture(priced, chosen),
        ],
    }


def command(asked: ExplorerRequest) -> str:
    """Return the command line that prints the same numbers."""
    words = [*shlex.split(asked.stored.command), "--source", "stored"]
    for change in asked.changes:
        words += ["--what-if", change]
    if asked.calibration:
        words += ["--calibration", CALIBRATION_FILE]
    return shlex.join(words)


def _priced(asked: ExplorerRequest) -> tuple[PredictionResult, PredictionResult]:
    """The prediction as built, and with the changes."""
    try:
        before = _as_built(asked.stored.key, asked.calibration)
        now = before.what_if(*asked.changes) if asked.changes else before
    except ArithmeticError:
        if not asked.calibration:
            raise
    else:
        known = all(math.isfinite(p.step_time_high) for p in (before, now))
        if known or not asked.calibration:
            return before, now
    raise InputError(f"{CALIBRATION} has figures that no machine has: no step ends with them")


@lru_cache(maxsize=KEPT)
def _as_built(key: str, calibration: str) -> PredictionResult:
    profile = profile_of_text(calibration) if calibration else None
    return predict(**by_key()[key].arguments, calibration=profile)


def _title(now: PredictionResult, asked: ExplorerRequest) -> str:
    stored, devices = asked.stored, now.devices
    return t(
        "{run} on {mesh} of {cluster}, {nodes}, {devices}",
        run=stored.run,
        mesh=now.mesh,
        cluster=stored.cluster,
        nodes=t("1 node") if stored.nodes == 1 else t("{n} nodes", n=stored.nodes),
        devices=t("1 device") if devices == 1 else t("{n:,} devices", n=devices),
    )


def _step(now: PredictionResult, before: PredictionResult | None) -> dict[str, Any]:
    seconds = float(now.step_time)
    shown = {
        "seconds": seconds,
        "text": format_time(seconds),
        "range": said(format_range(now.step_time_low, now.step_time_high)),
        "grade": t(now.grade),
        "change": "",
    }
    if before is not None:
        ratio = seconds / float(before.step_time)
        was = format_time(before.step_time)
        shown["change"] = t("{time} as built; now x{ratio:.3g}", time=was, ratio=ratio)
    return shown


def _figures(now: PredictionResult) -> list[dict[str, str]]:
    figures = {
        "tokens/s": (now.tokens_per_second, three_digits),
        "MFU": (now.mfu, percent),
        "HFU": (now.hfu, percent),
    }
    return [
        {"name": name, "text": "-" if value is None else show(value)}
        for name, (value, show) in figures.items()
    ]


def _memory(now: PredictionResult) -> dict[str, Any]:
    memory = now.memory
    capacity = None if memory.capacity is None else float(memory.capacity)
    short = format_memory(memory.peak)
    if capacity is not None:
        short = t("{peak} of {capacity}", peak=short, capacity=format_memory(capacity))
    return {
        "peak": float(memory.peak),
        "capacity": capacity,
        "fits": memory.fits,
        "text": said(verdict(memory)),
        "short": short,
    }
