"""The constants by which a chip is priced: each with its evidence, and how far others were off.

products bf16         calibrated       of a fit: constants, n, error, half range, source
attention forward     datasheet        what was assumed from another chip says which one
links inside a node
errors of kernels     of this chip, or of others, with its measurements left out of the store
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from statistics import median
from typing import Any

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.reading import read
from scaling.profiles.grades import grade_of, half_range
from scaling.profiles.io import profile_of
from scaling.profiles.profile import ANY, Evidence, LinkFit, Profile
from scaling.profiles.shipped import DATA
from scaling.questions.answer import Answer, Value

UNITS = {  # of constants that are no ratios
    **dict.fromkeys(("overhead", "combine", "alpha", "hop_overhead", "fill"), "s"),
    **dict.fromkeys(("cache",), "bytes"),
    **dict.fromkeys(("bandwidth", "cache_bandwidth"), "bytes/s"),
    **dict.fromkeys(("flops", "peak"), "FLOP/s"),
    "transcendentals": "1/s",
    "load": "bytes/cycle",
    "l2": "bytes/cycle",  # of a core
}
NAMES = ("dtype", "direction", "library", "evidence")  # fields of fits that are no constants


@dataclass(frozen=True)
class LeftOut:
    """Errors, predicted / measured - 1, of one kind of kernel on one chip, over its software.

    `experiments/published/kernel_scores.py` prices what was measured on a chip with what it borrows
    where its own rows are left out of the tables; `ship_kernels.py` there writes the file.
    """

    kind: str  # "product bf16, large"
    chip: str
    rows: int
    median: float  # of |error|, the median over the chip's software
    bias: float  # median error
    inside: float  # share of rows in low..high


@cache
def left_out() -> tuple[LeftOut, ...]:
    """All kinds and chips; none where nobody scored them."""
    file = DATA / "left_out.json"
    rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    return tuple(read(LeftOut, row, file.name) for row in rows)


def constants(chip: Accelerator) -> list[Answer]:
    """Return the constants of a chip's profile by kernel and link, and the errors of left-out ones.

    Raises:
        InputError: the chip has no stated peaks.
    """
    profile = profile_of(chip)
    parts = [_fit(name, fit) for name, fit in _fits(profile)]
    links = tuple(_link(fit) for fit in _own_links(profile))
    parts += [Answer("links inside a node", profile.links[0].link, rows=links)] if links else []
    tested = tuple(_left_out_rows(chip.name))
    if tested:
        whose = "other chips, each" if "chips" in tested[0] else "this chip"
        name = f"errors of kernels with the measurements of {whose} left out"
        parts.append(Answer(name, "predicted / measured - 1", rows=tested))
    return parts


def _fits(profile: Profile) -> Iterator[tuple[str, Any]]:
    yield from ((f"products {fit.dtype}", fit) for fit in profile.matmul)
    yield from ((f"grouped products {fit.dtype}", fit) for fit in profile.grouped)
    for fit in profile.attention:
        named = (word for word in (fit.direction, fit.dtype, fit.library) if word != ANY)
        yield f"attention {' '.join(named)}", fit
    yield from (("streams of bytes", profile.memory), ("vector units", profile.vector))
    if profile.interference is not None:
        yield "kernels beside collectives", profile.interference


def _fit(name: str, fit: Any) -> Answer:
    """The constants of one fit in a line, and where they are from."""
    evidence: Evidence = fit.evidence
    every = ((f, getattr(fit, f.name)) for f in fields(fit) if f.name not in NAMES)
    row = {_heading(f.name): _value(value) for f, value in every if value != f.default}
    assumed = evidence.source.partition(": ")[0] if evidence.source.startswith("assumed ") else ""
    grade = f"{evidence.grade}, {assumed}" if assumed else evidence.grade
    dated = f"{evidence.source} ({evidence.date})" if evidence.date else evidence.source
    return Answer(name, grade, rows=(row | _errors(evidence),), notes=(dated,))


def _heading(name: str) -> str:
    words = name.replace("_", " ")
    return f"{words} ({UNITS[name]})" if name in UNITS else words


def _value(value: Any) -> Value:
    return " x ".join(f"{v:g}" for v in value) if isinstance(value, tuple) else value


def _errors(evidence: Evidence) -> dict[str, Value]:
    """Measurements behind a fit, its median error, and the half range of what it prices."""
    half, late = (half_range(evidence, grade_of(evidence), latency) for latency in (False, True))
    errors: dict[str, Value] = {"n": evidence.samples, "median error": evidence.median_error}
    return errors | {"half range": half, "of latencies": late}


def _own_links(profile: Profile) -> Iterator[LinkFit]:
    """Fits of the links inside a node that were measured, of each algorithm the first."""
    seen = set()
    for fit in profile.links:
        key = fit.link, fit.algorithm
        if fit.link == profile.links[0].link and fit.evidence.samples and key not in seen:
            seen.add(key)
            yield fit


def _link(fit: LinkFit) -> dict[str, Value]:
    row: dict[str, Value] = {"algorithm": fit.algorithm, "collective": fit.kind}
    row |= {"efficiency": fit.efficiency, "alpha (s)": fit.alpha}
    return row | {"hop overhead (s)": fit.hop_overhead} | _errors(fit.evidence)


def _left_out_rows(name: str) -> Iterator[dict[str, Value]]:
    """The chip's own rows; where it has none, for each kind those of all other chips together."""
    if own := [row for row in left_out() if row.chip == name]:
        for row in own:
            errors = {"median": row.median, "bias": row.bias, "in range": row.inside}
            yield {"kernel": row.kind, "n": row.rows, **errors}
        return
    kinds = defaultdict(list)
    for row in left_out():
        kinds[row.kind].append(row)
    for kind, rows in kinds.items():
        n, worst = sum(row.rows for row in rows), max(rows, key=lambda row: row.median)
        yield {
            "kernel": kind,
            "chips": len(rows),
            "n": n,
            "median": median(row.median for row in rows),
            "worst": worst.median,
            "its chip": worst.chip,
            "in range": sum(row.rows * row.inside for row in rows) / n,
        }
