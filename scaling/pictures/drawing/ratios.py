"""How far numbers are off: a row for each, with a dot at its factor on a logarithmic scale."""

import math
from collections.abc import Mapping

from scaling.pictures.drawing.svg import LINE, WIDTH, dot, line, svg, text
from scaling.pictures.palette import COLOURS

NAME, ROW, EDGE = 250, 22, 30  # pixels: names, a row, what is left free at the right
TICKS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)


def ratios(rows: Mapping[str, float], right: float) -> str:
    """Return a dot for each ratio, in another colour where it is right.

    Args:
        rows: name -> what was said over what is so, above 0.
        right: relative distance from 1 up to which it is right.
    """
    low, high = math.log2(TICKS[0]), math.log2(TICKS[-1])
    across = lambda ratio: NAME + (math.log2(ratio) - low) / (high - low) * (WIDTH - NAME - EDGE)
    bottom = len(rows) * ROW
    shapes = []
    for tick in TICKS:
        x = across(tick)
        shapes.append(line([(x, 0), (x, bottom)], LINE, "" if tick == 1 else "1 5"))
        label = f"{tick:g}" if tick >= 1 else f"1/{1 / tick:g}"
        shapes.append(text(x, bottom + 16, label, "middle"))
    for number, (name, ratio) in enumerate(rows.items()):
        middle = (number + 0.5) * ROW
        inside = min(max(ratio, TICKS[0]), TICKS[-1])
        colour = COLOURS[2] if abs(ratio - 1) <= right else COLOURS[1]
        shapes.append(text(NAME - 12, middle + 4, name, "end"))
        shapes.append(dot(across(inside), middle, colour, f"{name}: {ratio:.3g} times"))
    return svg(shapes, bottom + ROW)
