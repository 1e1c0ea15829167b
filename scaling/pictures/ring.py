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
from scaling.pictures.shapes import SMALL, WIDTH, Picture, Rect, Shape, Text, beside, box

STEP, SIDE = 42.0, 34.0  # pixels from a square to the next, and of its side
LEFT, TOP = 66.0, 26.0  # pixels, of the first square
PALE = 0.45  # opacity of a sum that lacks terms
ACROSS = 4  # frames in a row
KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")


@dataclass(frozen=True)
class RingState:
    """What all members hold after a step, and what was sent in it."""

    terms: tuple[tuple[int, ...], ...]  # [member][piece]: terms of the piece's sum that it holds
    full: int  # terms of a finished piece: N where something is summed, else 1
    sends: tuple[tuple[int, int, int], ...] = ()  # (from, to, piece) of the step


def frames(kind: str, members: int) -> list[RingState]:
    """Return the start and every step of a collective whose array has as many pieces as members.

    In an all-to-all a piece is what one member has for this one: piece p came from member p.
    """
    assert kind in KINDS and members > 1
    ranks, is_sum = range(members), "reduce" in kind
    full = members if is_sum else 1
    # Of each step: member m sends piece m + b to member m + a, which then holds c terms: (a, b, c).
    adds = [(1, -step, step + 1) for step in range(1, members)]
    passes_on = [(1, 1 - step, full) for step in range(1, members)]  # what it received last
    exchanges = [(step, 0, 1) for step in range(1, members)]
    steps = dict(zip(KINDS, (passes_on, adds, [*adds, *passes_on], exchanges), strict=True))
    start = tuple(tuple(int(is_sum or piece == member) for piece in ranks) for member in ranks)
    states = [RingState(start, full)]
    for ahead, offset, terms in steps[kind]:
        sends = tuple((m, (m + ahead) % members, (m + offset) % members) for m in ranks)
        held = [list(row) for row in states[-1].terms]
        for _, target, piece in sends:
            held[target][piece] = terms
        states.append(RingState(tuple(map(tuple, held)), full, sends))
    return states


def ring(frame: RingState) -> Picture:
    """Return one step, with what each member has sent in words."""
    members = len(frame.terms)
    shapes = _squares(frame)
    for source, target, piece in frame.sends:
        y = TOP + (source + 0.5) * STEP
        shapes.append(Text(LEFT + members * STEP + 16, y, f"sent {piece} to GPU {target}"))
    return Picture("one step", WIDTH, TOP + members * STEP + 4, shapes)


def ring_steps(frames: Sequence[RingState], title: str) -> Picture:
    """Return every step of a collective beside one another, the state before it first."""
    size = len(frames[0].terms) * STEP
    panels = [
        Picture(f"step {number}" if number else "before", LEFT + size, TOP + size, _squares(frame))
        for number, frame in enumerate(frames)
    ]
    return beside(title, panels, ACROSS)


def _squares(frame: RingState) -> list[Shape]:
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
                size = SIDE, high
                shapes += box((x, y + SIDE - high), size, colour, opacity=pale, stroke="none")
            thick = 4 if (member, piece) in received else 0.5
            shapes.append(Rect(x, y, SIDE, SIDE, thick=thick))
    return shapes
