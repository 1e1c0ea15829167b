"""Every picture of README.md and docs/ that is drawn, by the name of its file.

A figure is a function that returns a picture; that of the rooms is SVG text of its own. Nothing is
drawn at random and no clock is read, so that the same figures write the same bytes.
"""

from collections.abc import Callable

from experiments.figures import (
    collectives,
    drawings,
    kernels,
    plans,
    published,
    rooms,
    steps,
    steps_against,
    xla_estimates,
)
from experiments.published import score_serving
from scaling.pictures.shapes import Picture

FIGURES: dict[str, Callable[[], Picture | str]] = {
    "bandwidth": published.bandwidth,
    "cluster": drawings.cluster,
    "memory_step": steps.memory,
    "mesh": drawings.mesh,
    "meshes": steps.meshes,
    "remat": steps.remat,
    "ring": drawings.ring,
    "roofline": steps.roofline,
    "rooms": rooms.drawing,
    "products": kernels.products,
    "grouped": kernels.grouped,
    "systems": collectives.systems,
    "nodes": collectives.nodes,
    "xla_steps": steps_against.xla_steps,
    "sources": steps_against.sources,
    "pipelines": steps_against.pipelines,
    "plans": plans.ranks,
    "front_ends": steps_against.front_ends,
    "memory": steps_against.memory,
    "testbed": steps_against.testbed,
    "host": steps_against.host,
    "scaling": steps.scaling,
    "serving": score_serving.picture,
    "timeline": steps.timeline,
    "validation": published.validation,
    "xla_estimates": xla_estimates.draw,
}
COMPILED = ("meshes",)  # from compiled programs: these need the extra `deviceless`
