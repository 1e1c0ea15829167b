"""The steps of a collective around a ring of N members, and what each member holds after them.

all-gather      N - 1 steps: each member passes on the piece that it received last
reduce-scatter  N - 1 steps: each adds its own term to a piece and passes it on
all-reduce      both, one after the other
all-to-all      N - 1 steps: in step s each member sends one piece to the s-th after it
"""

from dataclasses import dataclass

KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")


@dataclass(frozen=True)
class Frame:
    """What all members hold after a step, and what was sent in it."""

    terms: tuple[tuple[int, ...], ...]  # [member][piece]: terms of the piece's sum that it holds
    full: int  # terms of a finished piece: N where something is summed, else 1
    sends: tuple[tuple[int, int, int], ...] = ()  # (from, to, piece) of the step


def frames(kind: str, members: int) -> list[Frame]:
    """Return the start and every step of a collective whose array has as many pieces as members.

    Of an all-to-all a piece is what one member has for this one: piece p came from member p.

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
    return _sent_to_all(start, members) if kind == "all-to-all" else _passed_on(start, members)


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


def _sent_to_all(start: Frame, members: int) -> list[Frame]:
    """In step s member m sends its piece for member m + s."""
    found = [start]
    for step in range(1, members):
        found.append(_after(found[-1], [(m, (m + step) % members, m) for m in range(members)], 1))
    return found


def _after(before: Frame, sends: list[tuple[int, int, int]], terms: int) -> Frame:
    """The frame in which receivers hold so many terms of what they received."""
    held = [list(row) for row in before.terms]
    for _, target, piece in sends:
        held[target][piece] = terms
    return Frame(tuple(map(tuple, held)), before.full, tuple(sends))
