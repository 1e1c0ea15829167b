"""Write the link fits that are shipped, with their evidence, from the figures that were fitted.

python -m experiments.published.left_out       fits the figures, ten minutes
python -m experiments.published.ship_links     writes scaling/profiles/data/links.json, a second
"""

import json
from dataclasses import asdict
from pathlib import Path

from experiments.published.left_out import known_figures
from experiments.published.ranges import left_out_points, link_document

LINKS = Path("scaling/profiles/data/links.json")


def main() -> None:
    """Write the document."""
    document = asdict(link_document(known_figures()["all"], left_out_points()))
    LINKS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
