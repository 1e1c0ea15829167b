"""Programs on meshes that nobody compiled, from the programs of a few that were.

A tensor that travels along some axes lies split over each of the others, or it does not. Its bytes
on a mesh with axes of n_a devices are

    bytes = constant x prod_a n_a^-e_a        e_a = 1: split over a; 0: not

`exponents` starts from e = 1 for the axes that a collective is not along, 0 for those that it is,
and changes it as little as the compiled programs demand (least squares of least norm). The bytes of
kernels that are no products follow likewise, from e = 0: a state that is not split over an axis is
updated on each of its devices. Products are those of the program that is rescaled: every mesh has
the same work on the same number of devices.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from scaling.program.ir import Collective, Kernel, Operation, Program, with_operations

Flow = tuple[str, tuple[str, ...]]  # kind of collective, axes that it is along; kind of kernel, ()
PRODUCTS = ("matmul", "grouped", "attention")
Exponents = Mapping[Flow, np.ndarray]  # flow -> e [axes]


def exponents(programs: Sequence[Program]) -> Exponents:
    """Return how the bytes of each kind along each axis follow the sizes of all axes.

    Args:
        programs: of one step on meshes of the same axes.
    """
    axes = list(programs[0].mesh)
    moved: list[dict[Flow, float]] = [defaultdict(float) for _ in programs]
    for program, flows in zip(programs, moved, strict=True):
        for step, calls in program.operations:
            if isinstance(step, Kernel | Collective):
                flows[_flow(step)] += float(step.bytes * calls)
    found = {}
    for flow in {flow for flows in moved for flow in flows}:
        seen = [(p, n) for p, flows in zip(programs, moved, strict=True) if (n := flows[flow]) > 0]
        split = np.array([float(bool(flow[1]) and axis not in flow[1]) for axis in axes])
        if len(seen) > 1:
            sizes = np.log([[p.mesh[axis] for axis in axes] for p, _ in seen])
            bytes = np.log([n for _, n in seen])
            sizes, bytes = sizes[1:] - sizes[0], bytes[1:] - bytes[0]
            split = split - np.linalg.lstsq(sizes, bytes + sizes @ split, rcond=None)[0]
        found[flow] = split
    return found


def _flow(step: Kernel | Collective) -> Flow:
    return step.kind, step.axes if isinstance(step, Collective) else ()


def rescaled(program: Program, mesh: Mapping[str, int], split: Exponents) -> Program:
    """Return the program as it would be on another mesh of the same axes and as many devices.

    Collectives whose groups are those of no axes are left out: nobody knows their new ones.
    """
    ratios = np.log([program.mesh[axis] / n for axis, n in mesh.items()])

    def moved(step: Operation) -> Operation:
        if isinstance(step, Collective) and (step.groups or not step.axes):
            return replace(step, groups=(), axes=())
        is_product = isinstance(step, Kernel) and step.kind in PRODUCTS
        if is_product or not isinstance(step, Kernel | Collective):
            return step
        factor = math.exp(float(split[_flow(step)] @ ratios))
        return replace(step, bytes=step.bytes * factor)

    return replace(with_operations(program, moved), mesh=dict(mesh), device_ids=())
