"""Documents packed into rows of `seq_len` tokens, the same rows on every machine.

    best fit, longest document first: each goes into the row that it leaves the least room in

Rows are planned once, from the lengths alone: so that every process can read its own, any step can
be gone back to, and both are so on any mesh. (grain's own packing takes documents as they come, and
each process would pack those that it is given.) Of many documents each block is planned by itself,
and the plan is kept on disk.
"""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError
from scaling.training.data.cache import Arrays, key_of, load_or_make
from scaling.training.data.token_file import Stream, pieces, total

BLOCK = 1 << 16  # documents that are packed together: 0.1 s

Row = tuple[np.ndarray, ...]  # [seq_len] each: inputs, targets; and of documents segments, weights


@dataclass(frozen=True, eq=False)
class TokenizedDocuments:
    """Token ids of documents one after the other, and which of them count in the loss."""

    ids: Stream
    lengths: Stream  # int64 [documents]: tokens of each
    counted: Stream | None = None  # bool [tokens]; None: all
    text_bytes: int | None = None  # None: not known, or chats
    key: str = ""  # of the same documents in the cache; "": there is none

    def __len__(self) -> int:
        return len(self.lengths)

    def part(self, first: int, last: int) -> "TokenizedDocuments":
        """The documents from number `first` to before `last`."""
        begin = total(self.lengths[:first])
        place = slice(begin, begin + total(self.lengths[first:last]))
        counted = None if self.counted is None else self.counted[place]
        lengths, key = self.lengths[first:last], self.key and f"{self.key} {first} {last}"
        return replace(self, ids=self.ids[place], lengths=lengths, counted=counted, key=key)


class PackedRows(Sequence[Row]):
    """Rows of documents side by side: what stands behind the last one has segment and weight 0.

    A document longer than a row is split, each part a document of its own. Parts without a token
    that counts are left out.

    Raises:
        InputError: no token counts.
    """

    def __init__(self, documents: TokenizedDocuments, seq_len: int, where: str):
        self.documents, self.seq_len = documents, seq_len
        make = lambda: _plan(documents, seq_len)
        if documents.key and len(documents) > BLOCK:
            plan: dict[str, Any] = dict(load_or_make(key_of(documents.key, seq_len), make))
        else:
            blocks = list(make())
            plan = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
        self.first, self.last, self.ends = plan["first"], plan["last"], plan["ends"]
        self.split, self.filled = total(plan["split"]), total(self.last) - total(self.first)
        if not len(self):
            raise InputError(
                f"{where}: none of the {len(documents.ids):,} tokens of {len(documents):,} "
                "documents counts in the loss"
            )

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> Row:  # type: ignore[override]
        """int32 inputs, targets and segments, float32 weights."""
        if index >= len(self):
            raise IndexError(index)  # ends an iteration
        row = [np.zeros(self.seq_len, np.int32) for _ in range(3)]
        inputs, targets, segments = row
        weights, place = np.zeros(self.seq_len, np.float32), 0
        parts = slice(*[0, *np.asarray(self.ends[max(0, index - 1) : index + 1])][-2:])
        of_parts = zip(np.asarray(self.first[parts]), np.asarray(self.last[parts]), strict=True)
        for number, (first, last) in enumerate(of_parts, 1):
            here = slice(place, place := place + last - first)
            ids = np.asarray(self.documents.ids[first : last + 1])
            inputs[here], targets[here] = ids[:-1], ids[1:]
            counted = self.documents.counted
            weights[here] = 1 if counted is None else np.asarray(counted[first + 1 : last + 1])
            segments[here] = number
        return *row, weights

    @property
    def streams(self) -> Sequence[Stream]:
        counted = self.documents.counted
        return [self.documents.ids, self.documents.lengths, *([] if counted is None else [counted])]

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the order of the sequences, as JSON, besides batch and seed."""
        return {"tokens": len(self.documents.ids), "packed_rows": len(self)}


def _plan(documents: TokenizedDocuments, seq_len: int) -> Iterator[Arrays]:
    """Blocks of rows: first and last input of their parts of documents, and where rows end there.

    The target of the last input is one token further on. `split` counts documents in several parts.
    """
    begin = placed = 0
    for lengths in pieces(documents.lengths, BLOCK):
        stops = begin + np.cumsum(lengths)
        starts, stops = stops - lengths, stops - 1
        parts = np.maximum(0, -(-(lengths - 1) // seq_len))
        number = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        first = np.repeat(starts, parts) + number * seq_len
        last = np.minimum(first + seq_len, np.repeat(stops, parts))
        if documents.counted is not None:
            counted = np.asarray(documents.counted[begin : begin + int(lengths.sum())])
            targets = np.stack([first, last], axis=1).ravel() + 1 - begin
            kept = np.logical_or.reduceat(np.append(counted, False), targets)[::2]
            first, last = first[kept], last[kept]
        rows = pack(last - first, seq_len)
        order = np.array([place for row in rows for place in row], np.int64)
        ends = placed + np.cumsum([len(row) for row in rows], dtype=np.int64)
        split = np.array([(lengths > seq_len + 1).sum()])
        yield {"first": first[order], "last": last[order], "ends": ends, "split": split}
        begin, placed = begin + int(lengths.sum()), placed + len(order)


def pack(lengths: np.ndarray, capacity: int) -> list[list[int]]:
    """Numbers of the documents in each row; each length is from 1 to `capacity`.

    Best fit decreasing: at most 11/9 of the fewest rows possible, and 1 (Johnson et al. 1974,
    "Worst-case performance bounds for simple one-dimensional packing algorithms").
    """
    rows: list[list[int]] = []
    open_rows: dict[int, list[int]] = {}  # by room left
    rooms: list[int] = []  # keys of `open_rows`, ascending
    for document in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[document])
        at = bisect.bisect_left(rooms, length)
        if at == len(rooms):
            row, room = len(rows), capacity
            rows.append([])
        else:
            room = rooms[at]
            row = open_rows[room].pop()
            if not open_rows[room]:
                del open_rows[room], rooms[at]
        rows[row].append(document)
        left = room - length
        if left and left not in open_rows:
            bisect.insort(rooms, left)
        if left:
            open_rows.setdefault(left, []).append(row)
    return rows
