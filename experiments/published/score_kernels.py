"""Predicted against published times of kernels, each chip left out in turn.

    python -m experiments.published.score_kernels [--out FOLDER] [--kind WORDS] [--chip NAME]

Every row of `kernel_tables` is priced as `sc.kernel` does, with the chip's own profile ("now") and
with what it would borrow ("left out"), beside a roofline (`kernel_scores`); so are products beside
other work and collectives over PCIe (`beside_scores`). A chip with one software is a *group*: the
headline is the median over groups of the median |error|, `inside` the share of rows in low..high.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

import numpy as np

from experiments.published.beside_scores import layer_scores, overlap_scores, pcie_scores
from experiments.published.kernel_scores import Score, scores
from experiments.published.kernel_tables import FOLDER
from scaling.pictures.curves import ScatterPoint, scatter
from scaling.pictures.files import write_picture
from scaling.report.formatting import columns

BEFORE = FOLDER / "kernels_before.json"  # medians of the code before, as `--save` wrote them
# Median |error| that is the goal
GOALS = {
    "product bf16, large": 0.08,
    "product bf16, small": 0.15,
    "product bf16, m <= 256": 0.10,
    "product fp8, large": 0.10,
    "product fp8, small": 0.20,
    "product fp8, m <= 256": 0.15,
    "attention bf16, forward, large": 0.12,
    "attention bf16, backward, large": 0.10,
    "attention bf16, forward, small": 0.20,
    "attention bf16, backward, small": 0.20,
    "attention bf16, decode": 0.15,
    "attention fp8, backward, large": 0.15,
    "grouped bf16, forward": 0.12,
    "grouped bf16, gradient of inputs": 0.12,
    "grouped bf16, gradient of weights": 0.12,
    "collective over PCIe": 0.20,
    "product beside an all-gather, inside a node": 0.08,
    "product beside an all-gather, between nodes": 0.08,
}


ARRAYS = ("error", "inside", "left_out", "left_inside", "roofline")
DRAWN = 70  # points of a class of kernels in a picture


def size(errors: np.ndarray) -> float:
    """The median of |errors|."""
    return float(np.median(np.abs(errors)))


def headline(found: Sequence[Score]) -> dict[str, dict[str, float]]:
    """Kind -> medians over its groups, and shares of its rows inside the range."""
    kinds: dict[str, list[Score]] = defaultdict(list)
    for one in found:
        kinds[one.kind].append(one)
    share = lambda name, own: float(np.mean(np.concatenate([getattr(s, name) for s in own])))
    over = lambda name, own: float(np.median([size(getattr(s, name)) for s in own]))
    return {
        kind: {
            "rows": sum(len(s.error) for s in own),
            "groups": len(own),
            "now": over("error", own),
            "inside": share("inside", own),
            "left out": over("left_out", own),
            "left out inside": share("left_inside", own),
            "roofline": over("roofline", own),
        }
        for kind, own in kinds.items()
    }


def head_table(found: Sequence[Score]) -> list[str]:
    """A line per kind: goal, before, now, left out, roofline."""
    before = json.loads(BEFORE.read_text("utf-8")) if BEFORE.exists() else {}
    cells = [["kind", "rows", "groups", "goal", "before", "now", "inside", "left out", "inside"]]
    cells[0].append("roofline")
    percent = lambda value: "" if value is None else f"{value:.1%}"
    for kind, own in headline(found).items():
        cells.append(
            [
                kind,
                f"{own['rows']:,.0f}",
                f"{own['groups']:.0f}",
                "" if kind not in GOALS else f"< {GOALS[kind]:.0%}",
                percent(before.get(kind, {}).get("now")),
                percent(own["now"]),
                f"{own['inside']:.0%}",
                percent(own["left out"]),
                f"{own['left out inside']:.0%}",
                percent(own["roofline"]),
            ]
        )
    return columns(cells, left=(0,))


def groups_table(found: Sequence[Score]) -> list[str]:
    """A line per kind, chip and software."""
    cells = [["kind", "chip", "software", "n", "median", "bias", "worst", "inside"]]
    cells[0] += ["left out", "bias", "inside", "roofline"]
    for one in found:
        worst = one.error[np.argmax(np.abs(one.error))]
        cells.append(
            [
                one.kind,
                one.chip,
                one.software,
                str(len(one.error)),
                f"{size(one.error):.1%}",
                f"{np.median(one.error):+.1%}",
                f"{worst:+.0%}",
                f"{one.inside.mean():.0%}",
                f"{size(one.left_out):.1%}",
                f"{np.median(one.left_out):+.1%}",
                f"{one.left_inside.mean():.0%}",
                f"{size(one.roofline):.1%}",
            ]
        )
    return columns(cells, left=(0, 1, 2))


def chips_table(found: Sequence[Score]) -> list[str]:
    """A line per chip and kind, over software: n, median, bias, worst, left out."""
    own: dict[tuple[str, str], list[Score]] = defaultdict(list)
    for one in found:
        own[one.chip, one.kind].append(one)
    cells = [["chip", "kind", "n", "median", "bias", "inside", "left out", "bias", "inside"]]
    for (chip, kind), same in sorted(own.items()):
        joined = {name: np.concatenate([getattr(s, name) for s in same]) for name in ARRAYS}
        cells.append([chip, kind, str(len(joined["error"])), *_figures(same, joined, "error")])
        cells[-1] += _figures(same, joined, "left_out")
    return columns(cells, left=(0, 1))


def _figures(same: Sequence[Score], joined: dict[str, np.ndarray], name: str) -> list[str]:
    inside = joined["inside" if name == "error" else "left_inside"]
    typical = np.median([size(getattr(one, name)) for one in same])
    return [f"{typical:.1%}", f"{np.median(joined[name]):+.1%}", f"{inside.mean():.0%}"]


def document(found: Sequence[Score]) -> dict[str, object]:
    """The headline and the groups as JSON has them."""
    groups = [
        {
            "kind": one.kind,
            "chip": one.chip,
            "software": one.software,
            "rows": len(one.error),
            "median": size(one.error),
            "bias": float(np.median(one.error)),
            "worst": float(one.error[np.argmax(np.abs(one.error))]),
            "inside": float(one.inside.mean()),
            "left_out": {
                "median": size(one.left_out),
                "bias": float(np.median(one.left_out)),
                "inside": float(one.left_inside.mean()),
            },
            "roofline": size(one.roofline),
        }
        for one in found
    ]
    return {
        "date": date.today().isoformat(),
        "goals": GOALS,
        "kinds": headline(found),
        "groups": groups,
    }


def picture(found: Sequence[Score], chip: str, path: Path) -> None:
    """Draw predicted over measured times of a chip, at most `DRAWN` of each class of kernels."""
    classes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in found:
        if one.chip == chip:
            times = zip(one.measured, one.measured * (1 + one.error), strict=True)
            classes[one.kind.partition(",")[0]] += [(float(a), float(b)) for a, b in times]
    points = []
    for name, pairs in classes.items():
        every = -(-len(pairs) // DRAWN)
        points += [ScatterPoint(name, a, b) for a, b in sorted(pairs)[::every]]
    if points:
        write_picture(scatter(points, f"Kernels on {chip}", ("measured", "predicted")), path)


def write(found: Sequence[Score], folder: Path) -> None:
    """README.md with the tables, scores.json and a picture of each chip."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document(found), indent=1)
    (folder / "scores.json").write_text(text + "\n", "utf-8")
    head = HEAD.format(date=date.today().isoformat())
    for chip in dict.fromkeys(one.chip for one in found):
        picture(found, chip, folder / f"{chip}.svg")
        head += f"\n![Kernels on {chip}]({chip}.svg)"
    (folder / "README.md").write_text(
        "\n".join([head, "", "```", *report(found), "```", ""]), "utf-8"
    )


def report(found: Sequence[Score]) -> Iterator[str]:
    """The tables as lines."""
    yield from head_table(found)
    yield ""
    yield from chips_table(found)
    yield ""
    yield from groups_table(found)


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published.score_kernels")
    parser.add_argument("--kind", default="", help="only kinds with these words: 'product bf16'")
    parser.add_argument("--chip", default="", help="only chips with this in their name: a100")
    parser.add_argument("--save", type=Path, help="file for the headline's figures, as JSON")
    parser.add_argument("--out", type=Path, help="folder for README.md, scores.json and pictures")
    args = parser.parse_args(arguments)
    found = scores(args.kind, args.chip)
    beside = [*layer_scores(), *overlap_scores(), *pcie_scores()]
    found += [one for one in beside if args.kind in one.kind and args.chip in one.chip]
    for line in report(found):
        print(line)
    if args.out:
        write(found, args.out)
    if args.save:
        args.save.write_text(json.dumps(headline(found), indent=1) + "\n", "utf-8")


HEAD = """\
# Published kernels, as they are priced

{date}. Made by `python -m experiments.published.score_kernels --out`. Errors are predicted /
measured - 1; `median` is of their sizes, `bias` of themselves. The first table has the median over
groups, each a chip with one software; `before` is the code of 2026-11-23 (commit 73463513), `left
out` the price of a chip whose own measurements are taken from the store, so that it borrows those
of its generation, `inside` the share of rows between low and high, `roofline` FLOPs over the peak
or bytes over the bandwidth, the larger. Common constants of the form saw all chips here; the fits
themselves say what they miss when they are fitted without one.
"""

if __name__ == "__main__":
    main()
