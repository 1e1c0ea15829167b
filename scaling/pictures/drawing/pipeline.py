"""A pipeline's step: one row for each stage, one box for each pass of a microbatch."""

from collections.abc import Sequence

from scaling.pictures.drawing.svg import LINE, WIDTH, box, line, svg, text
from scaling.pictures.drawing.timetable import Pass
from scaling.pictures.palette import COLOURS

NAME, ROW, BAR, LEGEND = 66, 34, 28, 30  # pixels: names, a row, a box in it, above the first row
FONT = 14
DIGIT = 9  # pixels of a digit, so that a number is written only where it fits
# by direction and part: forward, backward; lighter for the first part
FORWARD, BACKWARD = (COLOURS[1], COLOURS[0]), (COLOURS[3], COLOURS[2])
INK = {COLOURS[0]: "white"}  # of numbers; else black


def pipeline(passes: Sequence[Pass]) -> str:
    """Return an SVG with time to the right; where a row is empty, the stage has no work."""
    end = float(max(one.end for one in passes))
    scale = (WIDTH - NAME - 4) / end
    stages = 1 + max(one.stage for one in passes)
    shapes = _legend(1 + max(one.part for one in passes))
    for stage in range(stages):
        top = LEGEND + stage * ROW
        shapes.append(text(NAME - 8, top + BAR - 8, f"stage {stage}", "end"))
        shapes.append(line([(NAME, top + BAR + 3), (WIDTH - 4, top + BAR + 3)], LINE, "1 5"))
    for one in passes:
        shapes += _pass(one, scale)
    height = LEGEND + stages * ROW + 20
    shapes.append(text((NAME + WIDTH) / 2, height - 6, "time \u2192", "middle"))
    return svg([f'<g font-size="{FONT}">', *shapes, "</g>"], height)


def _pass(one: Pass, scale: float) -> list[str]:
    colour = (FORWARD if one.forward else BACKWARD)[one.part % 2]
    left, top = NAME + scale * float(one.begin), LEGEND + one.stage * ROW
    width = scale * float(one.length)
    number = str(one.microbatch + 1)
    way = "forward" if one.forward else "backward"
    title = f"microbatch {number} {way} on stage {one.stage}, part {one.part + 1}"
    shapes = [box(left, top, width, BAR, colour, title)]
    if width > DIGIT * len(number) + 2:
        ink = INK.get(colour, "black")
        shapes.append(text(left + width / 2, top + BAR - 9, number, "middle", ink))
    return shapes


def _legend(parts: int) -> list[str]:
    """Return a square and words for each colour that occurs."""
    names = [("forward", FORWARD), ("backward", BACKWARD)]
    shapes, left = [], float(NAME)
    for part in range(min(parts, 2)):
        for way, colours in names:
            words = way if parts == 1 else f"{way}, part {part + 1}"
            shapes.append(box(left, 3, 14, 14, colours[part], words))
            shapes.append(text(left + 20, 15, words))
            left += (WIDTH - NAME) / (2 * min(parts, 2))
    return shapes
