"""Every picture of README.md and docs/ that is drawn, by the name of its file.

A picture is a function that is given the path and writes an SVG there. Nothing is drawn at random
and no clock is read, so that the same versions write the same bytes.
"""

from collections.abc import Callable
from pathlib import Path

from experiments.figures import collectives, kernels, rooms, steps, steps_against

FIGURES: dict[str, Callable[[Path], None]] = {
    "meshes": steps.meshes,
    "rooms": rooms.draw,
    "products": kernels.products,
    "grouped": kernels.grouped,
    "systems": collectives.systems,
    "nodes": collectives.nodes,
    "xla_steps": steps_against.xla_steps,
    "sources": steps_against.sources,
    "pipelines": steps_against.pipelines,
    "front_ends": steps_against.front_ends,
    "memory": steps_against.memory,
    "testbed": steps_against.testbed,
    "host": steps_against.host,
}
COMPILED = ("meshes",)  # from compiled programs: these need the extra `deviceless`
