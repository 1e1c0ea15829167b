"""Pairs of answers: which tokens count, where rows end, and what is refused."""

import json

import numpy as np
import pytest

from scaling.meshes.errors import InputError
from scaling.training.data.pairs import open_pairs

TEXT = {"prompt": "2+2=", "chosen": "4", "rejected": "five"}


def opened(tmp_path, records, seq_len=16):
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    return open_pairs(str(path), 256, seq_len, None)


def counted(row, side):
    """The text of the targets that count."""
    _, targets, weights = row
    return bytes(int(t) for t, w in zip(targets[side], weights[side], strict=True) if w)


def test_of_texts_the_answer_and_the_end_of_text_count(tmp_path):
    row = opened(tmp_path, [TEXT] * 2).train[0]
    assert (counted(row, 0), counted(row, 1)) == (b"4\0", b"five\0")
    assert bytes(row[0][0][:5].astype(np.uint8)) == b"2+2=4"


def test_of_chats_the_last_message_counts_however_the_prompt_is_given(tmp_path):
    say = lambda role, content: {"role": role, "content": content}
    begin = [say("user", "hi"), say("assistant", "yes?"), say("user", "2+2")]
    answers = {"chosen": [say("assistant", "4")], "rejected": "five"}
    whole = {k: [*begin, say("assistant", v)] for k, v in (("chosen", "4"), ("rejected", "five"))}
    rows = opened(tmp_path, [{"prompt": begin, **answers}, whole], seq_len=256)
    for row in (rows.train[0], rows.held_out[0]):
        assert (counted(row, 0), counted(row, 1)) == (b"4<|im_end|>", b"five<|im_end|>")


def test_answers_are_cut_and_pairs_without_one_left_out(tmp_path):
    long = {"prompt": "x" * 30, "chosen": "a", "rejected": "b"}
    rows = opened(tmp_path, [TEXT, long, {**TEXT, "chosen": "4" * 30}])
    assert len(rows.train) == len(rows.held_out) == 1
    assert counted(rows.held_out[0], 0) == b"4" * 13
    assert "1 that do not fit left out, 1 answers cut at 16 tokens" in rows.description
    with pytest.raises(InputError, match="1 of 2 pairs have both answers within"):
        opened(tmp_path, [TEXT, long])


@pytest.mark.parametrize(
    "record",
    [{**TEXT, "chosen": None}, {**TEXT, "rejected": [{"role": "user", "content": "?"}]}, []],
)
def test_a_record_that_is_no_pair_is_named(tmp_path, record):
    with pytest.raises(InputError, match="record 2"):
        opened(tmp_path, [TEXT, record, TEXT])
