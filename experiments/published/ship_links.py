"""Fit the published collectives, family by family, and write what is shipped.

python -m experiments.published.ship_links           writes scaling/profiles/data/links/FAMILY.json

--keep       only score the figures anew, ranges included
--between    fit the network only, keep what holds inside nodes
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from experiments.published.collectives import Case, chosen
from experiments.published.cross_validation import UNKNOWN, Errors, cross_errors, quantile
from experiments.published.families import FAMILIES, PLACES, Family, Where
from experiments.published.fit_links import Series, errors_of, fitted, series_of
from experiments.published.uses import Figures
from scaling.profiles.profile import ANY, Evidence, LinkFit

FOLDER = Path("scaling/profiles/data/links")
UNFITTED = Evidence(
    "taken as where the search starts: no all-to-all was published of such chips there",
    "2026-11-21",
    "datasheet",
)


def document(
    family: Family, figures: Figures, series: Sequence[Series], crossed: Errors
) -> dict[str, Any]:
    """What is shipped of a family: its figures, the links that follow, and how well they fit.

    Args:
        series: that were fitted.
        crossed: errors of the same points, each by figures fitted without it.
    """
    links = family.links(figures, UNKNOWN)
    known = {
        where: _evidence([s for s in series if s.place(family) == where], links)
        for where in family.stages
    }
    return {
        "chips": family.chips,
        "software": family.software,
        "made_by": "python -m experiments.published.ship_links",
        "figures": {k: float(f"{v:.4g}") for k, v in figures.items()},
        "links": [asdict(_with_range(link, known, crossed)) for link in links],
    }


def _evidence(some: Sequence[Series], links: Sequence[LinkFit]) -> Evidence | None:
    """How well the links explain what was fitted in one place; None: nothing was."""
    if not some:
        return None
    size = np.abs(errors_of(some, links))
    machines = ", ".join(sorted({s.machine for s in some}))
    return Evidence(
        f"fitted on experiments/published/collectives.csv, part fit: {machines}",
        date.today().isoformat(),
        "calibrated",
        len(size),
        median_error=float(np.median(size)),
        mean_error=float(np.mean(size)),
        max_error=float(np.max(size)),
    )


def _with_range(link: LinkFit, known: dict[Where, Evidence | None], crossed: Errors) -> LinkFit:
    """The link with the evidence of where it is used, or of another place if it has none."""
    where = next(place for place in _places(link) if known.get(place) is not None)
    evidence = known[where]
    assert evidence is not None
    if link.algorithm == "pairwise" and (link.kind, where) not in crossed:
        return replace(link, evidence=UNFITTED)
    held = np.abs(np.concatenate([e for key, e in crossed.items() if key[1] == where]))
    evidence = replace(
        evidence,
        held_out_error=float(held.mean()),
        error_p90=quantile(crossed, link.kind, where),
    )
    return replace(link, evidence=evidence)


def _places(link: LinkFit) -> list[Where]:
    """Where there may be evidence of a link, the best first."""
    if link.link != "network":
        return ["inside", "between"]
    own: list[Where] = [place for place in PLACES if place == link.transport]
    return [*own, "between", "inside"]


def main(arguments: list[str] | None = None) -> None:
    """Fit every family (or those named), write their files."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published.ship_links")
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--keep", action="store_true", help="only score the figures anew")
    parser.add_argument("--between", action="store_true", help="fit the network only")
    args = parser.parse_args(arguments)
    for name in args.families:
        found = shipped(FAMILIES[name], chosen("fit"), FOLDER / f"{name}.json", args)
        (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(line(name, found), flush=True)


def shipped(
    family: Family, cases: Sequence[Case], path: Path, args: argparse.Namespace
) -> dict[str, Any]:
    """The document of one family, fitted as the arguments say."""
    known: Figures | None = None
    if args.keep or args.between:
        known = json.loads(path.read_text(encoding="utf-8"))["figures"]
    if args.keep and known is not None:
        figures, series = known, series_of([case for case in cases if family.holds(case)])
    else:
        figures, series = fitted(
            family, cases, known=known, searched=PLACES[1:] if args.between else PLACES
        )
    return document(family, figures, series, cross_errors(family, cases))


def line(name: str, found: dict[str, Any]) -> str:
    """`hopper: all-reduce over nvlink 120 points, mean error 8.1 %, left out 9.0 %, range 20 %`"""
    shown = {}
    for link in found["links"]:
        e = link["evidence"]
        if not e["samples"]:
            continue
        shown[link["kind"], link["link"], link["transport"]] = (
            f"  {link['kind']} over {_over(link)}: {e['samples']} points, "
            f"mean error {e['mean_error']:.1%}, left out {e['held_out_error']:.1%}, "
            f"range {_percent(e['error_p90'])}"
        )
    return "\n".join([f"{name}:", *shown.values()])


def _over(link: dict[str, Any]) -> str:
    """`nvlink`, `network`, `efa`"""
    return link["link"] if link["transport"] == ANY else link["transport"]


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{part:.0%}"


if __name__ == "__main__":
    main()
