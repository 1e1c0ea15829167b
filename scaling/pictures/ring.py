"""The steps of a collective around a ring of N members, and what each member holds after them.

all-gather      N - 1 steps: each member passes on the piece that it received last
reduce-scatter  N - 1 steps: each adds its own term to a piece and passes it on
all-reduce      both, one after the other
all-to-all      N - 1 steps: in step s each member sends one piece to the s-th after it

In a picture a row is a member, and a square a piece.
A full square is a finished piece, a pale one a sum that lacks terms, filled by the share of the
terms that are there; what has just arrived has a thick edge.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scaling.pictures.palette import COLOURS
from scaling.pictures.shapes import SMALL, WIDTH, Picture, Rect, Shape, Text, beside

STEP, SIDE = 42.0, 34.0  # pixels from a square to the next, and of its side
LEFT, TOP = 66.0, 26.0  # pixels, of the first square
PALE = 0.45  # opacity of a sum that lacks terms
ACROSS = 4  # frames in a row
KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")


@dataclass(frozen=True)
class Frame:
    """What all members hold after a step, and what was sent in it."""

    terms: tuple[tuple[int, ...], ...]  # [member][piece]: terms of the piece's sum that it holds
    full: int  # terms of a finished piece: N where something is summed, else 1
    sends: tuple[tuple[int, int, int], ...] = ()  # (from, to, piece) of the step


def frames(kind: str, members: int) -> list[Frame]:
    """Return the start and every step of a collective whose array has as many pieces as members.

    In an all-to-all a piece is what one member has for this one: piece p came from member p.

    Args:
        kind: one of KINDS.
        members: 2 or more.
    """
    assert kind in KINDS and members > 1
    if kind == "reduce-scatter":
        return _scattered(members)
    if kind == "all-reduce":
        summed = _scattered(members)
        return [*summed, *_passed_on(summed[-1], members)[1:]]
    own = tuple(tuple(int(p == m) for p in range(members)) for m in range(members))
    start = Frame(own, 1)
    if kind == "all-gather":
        return _passed_on(start, members)
    found = [start]
    for step in range(1, members):  # member m sends its piece for member m + step
        found.append(_after(found[-1], [(m, (m + step) % members, m) for m in range(members)], 1))
    return found


def _scattered(members: int) -> list[Frame]:
    """In step s member m sends piece m - s with s terms; the next member adds its own."""
    found = [Frame(tuple((1,) * members for _ in range(members)), members)]
    for step in range(1, members):
        sends = [(m, (m + 1) % members, (m - step) % members) for m in range(members)]
        found.append(_after(found[-1], sends, step + 1))
    return found


def _passed_on(start: Frame, members: int) -> list[Frame]:
    """In step s member m sends piece m - s + 1, the one that it received in the step before."""
    found = [start]
    for step in range(1, members):
        sends = [(m, (m + 1) % members, (m - step + 1) % members) for m in range(members)]
        found.append(_after(found[-1], sends, start.full))
    return found


def _after(before: Frame, sends: list[tuple[int, int, int]], terms: int) -> Frame:
    """The frame in which receivers hold so many terms of what they received."""
    held = [list(row) for row in before.terms]
    for _, target, piece in sends:
        held[target][piece] = terms
    return Frame(tuple(map(tuple, held)), before.full, tuple(sends))


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
