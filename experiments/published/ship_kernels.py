"""Write what the scores of kernels say of how sure a price is into the shipped tables.

    python -m experiments.published.ship_kernels        after every fit of a table; half a minute

    products.json, attention.json    `error_p90`, `latency_p90` of each fit, of the chip's own rows;
                                     `lent_p90`, `lent_latency_p90`, of chips that are left out
    left_out.json                    how far off left-out chips were, which `scaling chip` shows

Both p90 hold `kernel_ranges.HELD` of the rows of every kind. Fits without rows in the tables, and
those of one library alone, keep what they have.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from experiments.published.fit_products import OTHER_NODE
from experiments.published.kernel_ranges import (
    BLOCKS,
    FEWEST,
    Key,
    Points,
    alike,
    fit_of,
    half_ranges,
    is_near,
)
from experiments.published.kernel_scores import Score, points, scores
from experiments.published.score_kernels import size
from experiments.published.tables import short
from scaling.meshes import catalog
from scaling.profiles.profile import ANY
from scaling.profiles.shipped import DATA
from scaling.questions.constants import LeftOut

TABLES = ("products", "attention")
DIGITS = 4  # of a figure
LEAST = 0.02  # half range of a fit


def key_of(table: str, row: Mapping[str, Any]) -> Key:
    """The key of a row, as `fit_of` has it; without a format where it is for all."""
    named = (table, row.get("direction"), row.get("dtype", ANY))
    return tuple(word for word in named if word not in (None, ANY))


def prices(row: Mapping[str, Any], key: Key, rows: Sequence[Mapping[str, Any]], kind: str) -> bool:
    """Whether a row of a table prices a kind on its chip, and none is for its format alone."""
    asked = fit_of(kind) or ()
    closer = any(key_of(key[0], r) == asked for r in rows if r["chip"] == row["chip"])
    return asked == key or (asked[: len(key)] == key and not closer)


def ship_ranges(table: str, found: Sequence[Score]) -> None:
    """Write the errors of a table's fits."""
    rows: list[dict[str, Any]] = json.loads((DATA / f"{table}.json").read_text("utf-8"))
    lent = [points(s, left=True) for s in found if len(_chips(found, s.kind)) > 1]
    for row in rows:
        key, evidence = key_of(table, row), row["evidence"]
        if row.get("library", ANY) != ANY or evidence["grade"] == "datasheet":
            continue
        every = [s for s in found if s.chip == row["chip"] and prices(row, key, rows, s.kind)]
        own = alike([points(s) for s in every], key)
        if sum(len(p.error) for p in own) >= FEWEST:
            pair = half_ranges(own, max(other_node(row), *_other_recipe(map(points, every))))
            evidence |= dict(
                zip(
                    ("error_p90", "latency_p90"),
                    (short(half, DIGITS) for half in pair),
                    strict=True,
                )
            )
        near = [p for p in lent if is_near(p.chip, row["chip"])]
        least = _other_recipe(p for p in near if fit_of(p.kind) == key)
        pair = half_ranges(alike(near, key, chips=2), max(LEAST, *least))
        evidence |= dict(
            zip(
                ("lent_p90", "lent_latency_p90"),
                (short(half, DIGITS) for half in pair),
                strict=True,
            )
        )
    (DATA / f"{table}.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def _chips(found: Sequence[Score], kind: str) -> set[str]:
    """Chips with rows that the fit of a kind prices: of one alone, no other could lend its own."""
    return {one.chip for one in found if fit_of(one.kind) == fit_of(kind)}


def _other_recipe(every: Iterable[Points]) -> list[float]:
    """The median errors of the kinds of another recipe."""
    errors = [np.abs(p.error) for p in every if BLOCKS in p.kind]
    return [0.0, *(float(np.expm1(np.median(np.concatenate(errors)))) for _ in errors[:1])]


def other_node(row: Mapping[str, Any]) -> float:
    """The least half range with which another laboratory's long products are held, if known."""
    rate = OTHER_NODE.get(row["chip"])
    if rate is None or row.get("dtype") != "bf16" or "sustained" not in row:
        return LEAST
    return row["sustained"] * catalog.accelerator(row["chip"]).peak("bf16") / (rate * 1e12) - 1


def ship_left_out(found: Sequence[Score]) -> None:
    """Write how far off left-out chips were."""
    own: dict[tuple[str, str], list[Score]] = defaultdict(list)
    for one in found:
        own[one.kind, one.chip].append(one)
    rows = [
        LeftOut(
            kind,
            chip,
            sum(len(s.error) for s in same),
            short(float(np.median([size(s.left_out) for s in same])), DIGITS),
            short(float(np.median(np.concatenate([s.left_out for s in same]))), DIGITS),
            short(float(np.mean(np.concatenate([s.left_inside for s in same]))), DIGITS),
        )
        for (kind, chip), same in own.items()
    ]
    text = ",\n".join(" " + json.dumps(asdict(row)) for row in rows)
    (DATA / "left_out.json").write_text(f"[\n{text}\n]\n", "utf-8")


def main() -> None:
    """Score all and write both."""
    found = scores()
    for table in TABLES:
        ship_ranges(table, found)
    ship_left_out(found)


if __name__ == "__main__":
    main()
