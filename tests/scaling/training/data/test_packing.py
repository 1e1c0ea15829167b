"""Documents side by side: every token once, none of them in another's way."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.training.data import packing
from scaling.training.data.packing import PackedRows, TokenizedDocuments, pack
from scaling.training.data.token_file import TokenFile


def tokenized(documents, counted=None):
    """Documents as lists of ids; all tokens count unless `counted` says which do."""
    flat = np.concatenate([np.array(d, np.int32) for d in documents])
    marks = None if counted is None else np.array(counted, bool)
    return TokenizedDocuments(flat, np.array([len(d) for d in documents]), marks)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=60))
def test_rows_hold_every_document_once_and_no_two_of_them_could_be_one(lengths):
    rows = pack(np.array(lengths), 20)
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    filled = sorted(sum(lengths[number] for number in row) for row in rows)
    assert filled[-1] <= 20
    assert len(filled) == 1 or filled[0] + filled[1] > 20


@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(2, 8))
def test_every_token_but_the_first_of_a_document_is_a_target_once(lengths, seq_len):
    if max(lengths) < 2:
        return
    ids = iter(range(1, 1000))
    documents = [[next(ids) for _ in range(n)] for n in lengths]
    rows = PackedRows(tokenized(documents), seq_len, "toy")
    seen = []
    for inputs, targets, segments, weights in (rows[i] for i in range(len(rows))):
        counts = weights > 0
        assert np.array_equal(counts, segments > 0)
        assert np.array_equal(targets[counts], inputs[counts] + 1)
        assert not inputs[~counts].any() and not targets[~counts].any()
        assert (np.diff(segments[counts]) >= 0).all()
        seen += targets[counts].tolist()
    assert sorted(seen) == [i for document in documents for i in document[1:]]


def test_a_document_longer_than_a_row_is_split_and_what_never_counts_is_left_out():
    marks = [0] * 7 + [1] * 2 + [0] * 3
    rows = PackedRows(tokenized([range(9), range(3)], marks), 4, "toy")
    assert rows.split == 1
    (row,) = (rows[i] for i in range(len(rows)))
    assert [part.tolist() for part in row] == [[4, 5, 6, 7], [5, 6, 7, 8], [1] * 4, [0, 0, 1, 1]]


def test_a_mask_that_leaves_no_token_is_refused_with_numbers():
    with pytest.raises(InputError, match="toy: none of the 7 tokens of 2 documents counts"):
        PackedRows(tokenized([range(4), range(3)], [0] * 7), 4, "toy")


def test_a_part_has_its_own_documents():
    part = tokenized([[1, 2], [3], [4, 5, 6]]).part(1, 3)
    assert (part.ids.tolist(), part.lengths.tolist(), len(part)) == ([3, 4, 5, 6], [1, 3], 2)


def test_blocks_of_documents_are_planned_apart_and_the_plan_is_kept_on_disk(monkeypatch):
    """Whatever the blocks, each token is a target once; the second opening plans nothing."""
    monkeypatch.setattr(packing, "BLOCK", 3)
    documents = replace(tokenized([range(n, 2 * n) for n in (9, 3, 5, 2, 7, 4, 6)]), key="toy")
    rows = PackedRows(documents, 4, "toy")
    targets = np.concatenate([rows[i][1][rows[i][3] > 0] for i in range(len(rows))])
    expected = np.concatenate([range(n + 1, 2 * n) for n in (9, 3, 5, 2, 7, 4, 6)])
    assert sorted(targets) == sorted(expected) and rows.filled == len(targets)
    assert rows.split == 3 and isinstance(rows.ends, TokenFile)
    monkeypatch.setattr(packing, "pack", None)
    again = PackedRows(documents, 4, "toy")
    assert np.array_equal([again[i] for i in range(len(rows))], [rows[i] for i in range(len(rows))])
