"""Every picture of README.md and docs/ that is drawn, by the name of its file.

A picture is a function that is given the path and writes an SVG there. Nothing is drawn at random
and no clock is read, so that the same versions write the same bytes.
"""

from collections.abc import Callable
from pathlib import Path

from experiments.figures import rooms, steps

FIGURES: dict[str, Callable[[Path], None]] = {
    "meshes": steps.meshes,
    "rooms": rooms.draw,
}
COMPILED = ("meshes",)  # from compiled programs: these need the extra `deviceless`
