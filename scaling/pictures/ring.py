"""The steps of a collective around a ring: a row for each member, a square for each piece.

A full square is a finished piece, a pale one a sum that lacks terms, filled by the share of the
terms that are there; what has just arrived has a thick edge.
"""

from collections.abc import Sequence

from scaling.pictures.frames import Frame
from scaling.pictures.palette import COLOURS
from scaling.pictures.shapes import SMALL, WIDTH, Picture, Rect, Shape, Text, beside

STEP, SIDE = 42.0, 34.0  # pixels from a square to the next, and of its side
LEFT, TOP = 66.0, 26.0  # pixels, of the first square
PALE = 0.45  # opacity of a sum that lacks terms
ACROSS = 4  # frames in a row


def ring(frame: Frame) -> Picture:
    """Return one step, with what each member has sent in words."""
    members = len(frame.terms)
    shapes = _squares(frame)
    for source, target, piece in frame.sends:
        y = TOP + (source + 0.5) * STEP
        shapes.append(Text(LEFT + members * STEP + 16, y, f"sent {piece} to GPU {target}"))
    return Picture("one step", WIDTH, TOP + members * STEP + 4, shapes)


def ring_steps(frames: Sequence[Frame], title: str) -> Picture:
    """Return every step of a collective beside one another, the state before it first."""
    size = len(frames[0].terms) * STEP
    panels = [
        Picture(f"step {number}" if number else "before", LEFT + size, TOP + size, _squares(frame))
        for number, frame in enumerate(frames)
    ]
    return beside(title, panels, ACROSS)


def _squares(frame: Frame) -> list[Shape]:
    received = {(target, piece) for _, target, piece in frame.sends}
    shapes: list[Shape] = [Text(LEFT - 10, TOP - 8, "piece", "end", size=SMALL)]
    for member, held in enumerate(frame.terms):
        x, y = LEFT + member * STEP, TOP + member * STEP
        shapes.append(Text(x + SIDE / 2, TOP - 8, str(member), "middle", size=SMALL))
        shapes.append(Text(LEFT - 10, y + SIDE / 2 + 5, f"GPU {member}", "end", size=SMALL))
        for piece, terms in enumerate(held):
            x, high = LEFT + piece * STEP, SIDE * terms / frame.full
            colour, pale = COLOURS[piece % len(COLOURS)], 1 if terms == frame.full else PALE
            if terms:
                shapes.append(Rect(x, y + SIDE - high, SIDE, high, colour, "none", 0, pale))
            thick = 4 if (member, piece) in received else 0.5
            shapes.append(Rect(x, y, SIDE, SIDE, line=thick))
    return shapes
