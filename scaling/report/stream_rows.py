"""A recorded step as rows of characters: what each stream of a device does, time to the right.

    compute        FFFFFFFFFFFFFFFFFFFFFFBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBO
    communication  ff..f...f...f...f...ff.ff.ff.ff.ff.ff.ff.ff.ff.ff.ff.ff.ff.ff.ff.ff.

A character is what fills most of its part of the step; a dot where the stream is idle but for a
twentieth of it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from scaling.pictures.rows import Bar, column_shares
from scaling.program.ir import Collective
from scaling.simulate.side_by_side import Event

WIDTH = 72  # characters of a row, which with its name fit a terminal of 100 columns
IDLE = "."
SEEN = 0.05  # share of a character's time from which on it is no dot; chosen by this project
PHASES = {"forward": "F", "backward": "B", "remat": "R", "optimizer": "O"}
OTHER = "+"  # of no known phase, or over several axes
WORDS = {
    "F": "forward", "B": "backward", "R": "computed again", "O": "optimizer", "s": "stage",
    "d": "data", "f": "fsdp", "e": "expert", "c": "context", "t": "tensor",
    OTHER: "other or several axes", IDLE: "nothing",
}  # fmt: skip
Span = tuple[float, float, str]  # start, end, character


def stream_rows(events: Iterable[Event], end: float) -> list[str]:
    """Return a row for each stream of a recorded timeline that is used, and a legend.

    `end`: s, of the whole row.
    """
    spans: dict[str, list[Span]] = defaultdict(list)
    for event in events:
        spans[event.stream].append((event.start, event.end, character(event)))
    rows = {stream: row(found, end) for stream, found in spans.items()}
    seen = Counter("".join(rows.values()))
    legend = ", ".join(f"{c} {words}" for c, words in WORDS.items() if c in seen)
    name = max(map(len, rows), default=0)
    return [*(f"{stream.ljust(name)}  {text}" for stream, text in rows.items()), legend]


def character(event: Event) -> str:
    """Return the character of an event: phase of a kernel, first letter of a collective's axis."""
    step = event.operation
    if isinstance(step, Collective):
        return step.axes[0][0] if len(step.axes) == 1 else OTHER
    return PHASES.get(step.origin.phase, OTHER)


def row(spans: Sequence[Span], end: float, width: int = WIDTH) -> str:
    """Return the characters of spans that do not overlap, over a time from 0 to `end`."""
    if not spans:
        return IDLE * width
    bars: dict[str, list[Bar]] = defaultdict(list)
    for span in spans:
        bars[span[2]].append(Bar(*span))
    edges = np.linspace(0.0, end, width + 1)
    shares = np.array([column_shares(own, edges) for own in bars.values()])
    signs = np.array([*bars])[shares.argmax(axis=0)]
    return "".join(np.where(shares.sum(axis=0) >= SEEN, signs, IDLE))
