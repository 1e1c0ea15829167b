"""Write the link fits that are shipped, with their evidence, from the figures that were fitted.

python -m experiments.published.left_out       fits the figures, ten minutes
python -m experiments.published.ship_links     writes scaling/profiles/data/links.json, a second
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.published.left_out import known_figures
from experiments.published.ranges import left_out_points, link_document
from experiments.published.tables import stated
from scaling.profiles.io import LinkFile
from scaling.profiles.profile import LinkFit

LINKS = Path("scaling/profiles/data/links.json")


def link_text(file: LinkFile) -> str:
    """The JSON of link fits: figures that are not the default, kinds with the same ones once."""
    document: dict[str, Any] = {"made_by": file.made_by}
    if file.figures:
        document["figures"] = dict(file.figures)
        groups = [{"chips": group.chips, "links": rows(group.links)} for group in file.inside]
        document["inside"] = groups
    return json.dumps(document | {"between": rows(file.between)}, indent=1, default=asdict) + "\n"


def rows(fits: Iterable[LinkFit]) -> list[dict[str, Any]]:
    """Rows of the file, each with the kinds that have nothing else of their own."""
    merged: dict[str, dict[str, Any]] = {}
    for fit in fits:
        row = {"kind": [], **stated(fit)}
        same = json.dumps(row | {"kind": []}, default=asdict)
        merged.setdefault(same, row | {"kind": []})["kind"].append(fit.kind)
    return list(merged.values())


def main() -> None:
    """Write the document."""
    file = link_document(known_figures()["all"], left_out_points())
    LINKS.write_text(link_text(file), encoding="utf-8")


if __name__ == "__main__":
    main()
