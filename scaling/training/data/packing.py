"""Documents packed into rows of `seq_len` tokens, the same rows on every machine.

    best fit, longest document first: each goes into the row that it leaves the least room in

Rows are planned once, from the lengths alone: so that every process can read its own, any step can
be gone back to, and both are so on any mesh. (grain's own packing takes documents as they come, and
each process would pack those that it is given.)
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError
from scaling.training.data.token_file import TokenFile

Stream = np.ndarray | TokenFile  # integers [tokens]
Row = tuple[np.ndarray, ...]  # [seq_len] each: inputs, targets; and of documents segments, weights


@dataclass(frozen=True, eq=False)
class TokenizedDocuments:
    """Token ids of documents one after the other, and which of them count in the loss."""

    ids: Stream
    counted: np.ndarray  # bool [tokens]
    ends: np.ndarray  # int64 [documents]: where each ends in `ids`

    def __len__(self) -> int:
        return len(self.ends)

    def part(self, first: int, last: int) -> "TokenizedDocuments":
        """The documents from number `first` to before `last`."""
        begin = int(self.ends[first - 1]) if first else 0
        end = int(self.ends[last - 1]) if last else 0
        return TokenizedDocuments(
            self.ids[begin:end], self.counted[begin:end], self.ends[first:last] - begin
        )


def one_document(ids: Stream) -> TokenizedDocuments:
    """A stream as one document, all of which counts."""
    return TokenizedDocuments(ids, np.broadcast_to(True, len(ids)), np.array([len(ids)]))


class PackedRows(Sequence[Row]):
    """Rows of documents side by side: what stands behind the last one has segment and weight 0.

    A document longer than a row is split, each part a document of its own. Parts without a token
    that counts are left out.

    Raises:
        InputError: no token counts.
    """

    def __init__(self, documents: TokenizedDocuments, seq_len: int, where: str):
        self.documents, self.seq_len = documents, seq_len
        parts, begin = [], 0  # first and last input of each part of a document
        for end in documents.ends.tolist():
            last = end - 1  # the target of the one before it
            parts += [(first, min(first + seq_len, last)) for first in range(begin, last, seq_len)]
            begin = end
        pieces = np.array(parts, np.int64).reshape(-1, 2)
        counts = np.concatenate([[0], np.cumsum(documents.counted)])
        pieces = pieces[counts[pieces[:, 1] + 1] > counts[pieces[:, 0] + 1]]
        if not len(pieces):
            raise InputError(
                f"{where}: none of the {len(documents.ids):,} tokens of {len(documents):,} "
                "documents counts in the loss"
            )
        self.rows = [pieces[places] for places in pack(pieces[:, 1] - pieces[:, 0], seq_len)]
        self.split = int((np.diff(documents.ends, prepend=0) > seq_len + 1).sum())

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:  # type: ignore[override]
        """int32 inputs, targets and segments, float32 weights."""
        row = [np.zeros(self.seq_len, np.int32) for _ in range(3)]
        inputs, targets, segments = row
        weights, place = np.zeros(self.seq_len, np.float32), 0
        for number, (first, last) in enumerate(self.rows[index], 1):
            here = slice(place, place := place + last - first)
            inputs[here] = self.documents.ids[first:last]
            targets[here] = self.documents.ids[first + 1 : last + 1]
            weights[here] = self.documents.counted[first + 1 : last + 1]
            segments[here] = number
        return *row, weights

    @property
    def streams(self) -> Sequence[Stream]:
        return [self.documents.ids, self.documents.ends, self.documents.counted]

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the order of the sequences, as JSON, besides batch and seed."""
        return {"tokens": len(self.documents.ids), "packed_rows": len(self)}


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
