"""Draws the pictures of README.md and docs/, from predictions and from data that is recorded here.

python -m experiments.figures                    all of them, into docs/images
python -m experiments.figures meshes rooms       some of them
"""

import argparse
from pathlib import Path

from experiments.figures.table import FIGURES
from scaling.pictures.files import write_picture

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


def main(arguments: list[str] | None = None) -> None:
    """Draw the pictures that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m experiments.figures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FIGURES))
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder")
    given = parser.parse_args(arguments)
    for name in given.names:
        if name not in FIGURES:
            parser.error(f"no picture {name!r}; there are {', '.join(FIGURES)}")
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.names or FIGURES:
        path = given.out / f"{name}.svg"
        drawn = FIGURES[name]()
        if isinstance(drawn, str):
            path.write_text(drawn, encoding="utf-8")
        else:
            write_picture(drawn, path)
        print(f"{path}: {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
