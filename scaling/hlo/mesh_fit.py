"""Whether the mesh that somebody says a program has is the mesh of its groups of devices.

    groups {0..7}, {8..15}, ... of 64      steps of 1 from each of 8 to the next    64 = 8 x 8
    groups {0,8,..,56}, {1,9,..,57}, ...   steps of 8

A wrong mesh names no axis for any group, and the prices would be of groups by their numbers.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from scaling.hlo.replica_groups import axes_of_groups
from scaling.meshes.errors import InputError
from scaling.meshes.shape import axes_text, groups_along
from scaling.program.ir import Program, collectives


def check_mesh(program: Program, known: Mapping[str, int] | None, is_given: bool = True) -> str:
    """What is to be said first of the mesh that a program is priced on; "" if it is that of all.

    Args:
        known: the mesh that files beside the program name; None: there are none.
        is_given: whether somebody has said that it is this mesh.

    Raises:
        InputError: somebody has, and no groups of devices are those of its axes, or fewer than of
            those known. Groups of all devices are those of every mesh.
    """
    said = axes_text(program.mesh)
    calls = {call.name: call for call, _ in collectives(program)}.values()
    groups = [np.array(call.groups) for call in calls if call.groups and not call.axes]
    if not groups:
        if not known or list(known.items()) == list(program.mesh.items()):
            return ""
        return f"the dump says that its mesh is {axes_text(known)}; {said} names the same groups"
    if is_given and known and any(axes_of_groups(each, known) for each in groups):
        raise InputError(
            f"{_misfit(program, groups)}: it says itself that its mesh is {axes_text(known)}"
        )
    sizes = _suggested(groups, int(np.prod([*program.mesh.values()])))
    advice = f", as axes of sizes {' x '.join(map(str, sizes))} have, outermost first"
    misfit = f"{_misfit(program, groups)}{advice if sizes else ''}"
    # whether a call is among some devices of its axes, not among all
    fits = any(call.axes and len(groups_along(program.mesh, call.axes)) > 1 for call in calls)
    if is_given and not fits:
        raise InputError(misfit)
    return f"{misfit}{'' if is_given else ': --mesh names them'}" if sizes else ""


def _misfit(program: Program, groups: Sequence[np.ndarray]) -> str:
    first = [int(device) for device in groups[0][0]]
    shown = f"{first[:8]} ..." if len(first) > 8 else f"{first}"
    return (
        f"the mesh {axes_text(program.mesh)} is not that of the program, whose devices talk in "
        f"groups such as {shown} ({groups[0].shape[0]} of {len(first)})"
    )


def _suggested(groups: Sequence[np.ndarray], devices: int) -> list[int]:
    """Sizes of axes that have groups of equal steps; [] where there are none."""
    cuts = {1, devices}
    for group in (np.sort(each[0]) for each in groups):
        if len(steps := set(np.diff(group).tolist())) == 1:
            cuts |= {step := int(steps.pop()), step * len(group)}
    ordered = sorted(cuts)
    if any(outer % inner for inner, outer in pairwise(ordered)):
        return []
    sizes = [outer // inner for inner, outer in pairwise(ordered)][::-1]
    named = {f"{i}": size for i, size in enumerate(sizes)}
    return sizes if any(axes_of_groups(each, named) for each in groups) else []
