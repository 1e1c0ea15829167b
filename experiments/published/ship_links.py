"""Fit the published collectives, family by family, and write what is shipped.

python -m experiments.published.ship_links           writes scaling/profiles/data/links/FAMILY.json

--keep       only score the parameters anew, ranges included
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

from experiments.published.collectives import Case, cases_of
from experiments.published.families import FAMILIES, FOLDER, SCOPES, Family, Scope
from experiments.published.fit_links import Series, errors_of, fitted, series_of
from experiments.published.parameters import Parameters
from experiments.published.validation import UNKNOWN, Errors, cross_errors, error_quantile
from scaling.profiles.profile import ANY, Evidence, LinkFit

UNFITTED = Evidence(
    "taken as where the search starts: no all-to-all was published of such chips there",
    "2026-11-21",
    "datasheet",
)


def document(
    family: Family, parameters: Parameters, series: Sequence[Series], crossed: Errors
) -> dict[str, Any]:
    """The shipped document of a family: parameters, the link fits that follow, and their errors.

    `crossed` are the errors of the fitted points with parameters fitted without them.
    """
    links = family.links(parameters, UNKNOWN)
    evidence = {
        scope: _evidence([s for s in series if s.scope(family) == scope], links)
        for scope in family.stages
    }
    return {
        "chips": family.chips,
        "software": family.software,
        "made_by": "python -m experiments.published.ship_links",
        "figures": {k: float(f"{v:.4g}") for k, v in parameters.items()},
        "links": [asdict(_with_range(link, evidence, crossed)) for link in links],
    }


def _evidence(series: Sequence[Series], links: Sequence[LinkFit]) -> Evidence | None:
    """Errors of the link fits on the series of one scope; None: there are none."""
    if not series:
        return None
    size = np.abs(errors_of(series, links))
    machines = ", ".join(sorted({s.machine for s in series}))
    return Evidence(
        f"fitted on experiments/published/collectives.csv, part fit: {machines}",
        date.today().isoformat(),
        "calibrated",
        len(size),
        median_error=float(np.median(size)),
        mean_error=float(np.mean(size)),
        max_error=float(np.max(size)),
    )


def _with_range(link: LinkFit, known: dict[Scope, Evidence | None], crossed: Errors) -> LinkFit:
    """The link fit with the evidence of its own scope, or of another scope if that has none."""
    scope = next(scope for scope in _scopes(link) if known.get(scope) is not None)
    evidence = known[scope]
    assert evidence is not None
    if link.algorithm == "pairwise" and (link.kind, scope) not in crossed:
        return replace(link, evidence=UNFITTED)
    crossed_errors = np.abs(np.concatenate([e for key, e in crossed.items() if key[1] == scope]))
    evidence = replace(
        evidence,
        held_out_error=float(crossed_errors.mean()),
        error_p90=error_quantile(crossed, link.kind, scope),
    )
    return replace(link, evidence=evidence)


def _scopes(link: LinkFit) -> list[Scope]:
    """Scopes that may have evidence of a link fit, the closest first."""
    if link.link != "network":
        return ["inside", "between"]
    own: list[Scope] = [scope for scope in SCOPES if scope == link.transport]
    return [*own, "between", "inside"]


def main(arguments: list[str] | None = None) -> None:
    """Fit every family (or those named) and write their files."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published.ship_links")
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--keep", action="store_true", help="only score the parameters anew")
    parser.add_argument("--between", action="store_true", help="fit the network only")
    args = parser.parse_args(arguments)
    for name in args.families:
        written = family_document(FAMILIES[name], cases_of("fit"), FOLDER / f"{name}.json", args)
        (FOLDER / f"{name}.json").write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
        print(summary(name, written), flush=True)


def family_document(
    family: Family, cases: Sequence[Case], path: Path, args: argparse.Namespace
) -> dict[str, Any]:
    """The document of one family, fitted as the arguments demand."""
    known: Parameters | None = None
    if args.keep or args.between:
        known = json.loads(path.read_text(encoding="utf-8"))["figures"]
    if args.keep and known is not None:
        parameters, series = known, series_of([case for case in cases if family.includes(case)])
    else:
        parameters, series = fitted(
            family, cases, known=known, searched=SCOPES[1:] if args.between else SCOPES
        )
    return document(family, parameters, series, cross_errors(family, cases))


def summary(name: str, written: dict[str, Any]) -> str:
    """`hopper: all-reduce over nvlink 120 points, mean error 8.1 %, left out 9.0 %, range 20 %`"""
    shown = {}
    for link in written["links"]:
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
