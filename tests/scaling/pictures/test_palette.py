"""Colours that lie next to one another in a stack differ for eyes that lack the green cones."""

from itertools import pairwise

import numpy as np
import pytest

from scaling.pictures import bars, roofline, timeline
from scaling.pictures.palette import COLOURS

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision
# Deficiency", IEEE TVCG 15(6), 2009: severity 1, on linear RGB.
DEUTERANOPIA = np.array(
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]
)
PROTANOPIA = np.array(
    [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ]
)
# linear sRGB -> XYZ, and white, of IEC 61966-2-1
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])
# CIE 1976; 2.3 is just noticeable (Mahy et al., Color Research & Application 19, 1994)
APART = 15.0


def lab(colour: str, seen: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of a colour as it is seen."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    share = TO_XYZ @ np.clip(seen @ linear, 0, 1) / WHITE
    cube = np.where(share > (6 / 29) ** 3, np.cbrt(share), share * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * cube[1] - 16, 500 * (cube[0] - cube[1]), 200 * (cube[1] - cube[2])])


def colours_of(table) -> list[str]:
    return [entry[1] if isinstance(entry, tuple) else entry for entry in table.values()]


STACKS = {
    "palette": list(COLOURS),
    "steps": colours_of(bars.TERMS),
    "timeline": colours_of(timeline.COLOURS),
    "kernels": colours_of(roofline.KERNELS),
}


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("eye", ["all cones", "deuteranopia", "protanopia"])
def test_neighbours_differ(stack, eye):
    seen = {"all cones": np.eye(3), "deuteranopia": DEUTERANOPIA, "protanopia": PROTANOPIA}[eye]
    for first, second in pairwise(STACKS[stack]):
        apart = np.linalg.norm(lab(first, seen) - lab(second, seen))
        assert apart > APART, f"{first} and {second}: {apart:.1f}"
