"""Writes the pictures of docs/ from the data that the repository holds.

python -m experiments.figures                    all of them, into docs/images
python -m experiments.figures rooms              one of them
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from experiments.figures import rooms

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
TEXTS: dict[str, Callable[[], str]] = {"rooms": rooms.drawing}  # SVG by the name of its file


def main() -> None:
    """Write the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *TEXTS], default=[], metavar="NAME")
    names = parser.parse_args().names or list(TEXTS)
    for name in names:
        (IMAGES / f"{name}.svg").write_text(TEXTS[name](), encoding="utf-8")
        print(f"docs/images/{name}.svg")


if __name__ == "__main__":
    main()
