"""Pairs of answers for DPO, a chosen and a rejected one to a prompt: records of a file.

    {"prompt": TEXT, "chosen": TEXT, "rejected": TEXT}        plain text, and the end of text
    {"prompt": [messages], "chosen": [messages], ...}         chats; a text is one message
    {"chosen": [messages], "rejected": [messages]}            whole chats, prompt and all

Only tokens of the answer count, in chats those of the assistant's last message
(`scaling.training.data.chat`). Each answer with its prompt is a sequence of its own, cut at its
end; a pair of which nothing is left to count is left out.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError
from scaling.training.data.chat import ASSISTANT, encode_chats
from scaling.training.data.documents import RECORDS, numbered
from scaling.training.data.packing import Row
from scaling.training.data.tokenizer import Tokenizer, open_tokenizer
from scaling.training.data.tokens import HELD_OUT_FRACTION, TokenSplit

SIDES = ("chosen", "rejected")
Encoded = tuple[np.ndarray, np.ndarray]  # ids, and which of them count: of one answer


class PairedRows(Sequence[Row]):
    """Pairs of sequences: int32 inputs and targets, float32 weights, [2, seq_len] each."""

    def __init__(self, pairs: Sequence[tuple[Encoded, Encoded]], seq_len: int):
        self.pairs, self.seq_len = pairs, seq_len

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Row:  # type: ignore[override]
        inputs, targets = (np.zeros((2, self.seq_len), np.int32) for _ in range(2))
        weights = np.zeros((2, self.seq_len), np.float32)
        for side, (ids, counted) in enumerate(self.pairs[index]):
            end = min(len(ids) - 1, self.seq_len)
            inputs[side, :end], targets[side, :end] = ids[:end], ids[1 : end + 1]
            weights[side, :end] = counted[1 : end + 1]
        return inputs, targets, weights

    @property
    def streams(self) -> list[np.ndarray]:
        every = [answer for pair in self.pairs for answer in pair]
        return [np.concatenate(parts) for parts in zip(*every, strict=True)]

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the order of the pairs, as JSON, besides batch and seed."""
        return {"pairs": len(self)}


def open_pairs(spec: str, vocab_size: int, seq_len: int, tokenizer: str | None) -> TokenSplit:
    """The pairs of a file, the last twentieth of them held out.

    Raises:
        InputError: no such file, a record that is no pair (with its number), fewer than two pairs
            with an answer that fits.
    """
    path, encoder = Path(spec).expanduser(), open_tokenizer(tokenizer, vocab_size)
    if path.suffix not in RECORDS or not path.is_file():
        raise InputError(
            f"data {spec!r}: train.loss dpo takes a file of prompt, chosen and rejected: "
            f"{', '.join(RECORDS)}"
        )
    records = [
        [_encoded(encoder, record, side, f"data {spec!r}, record {number:,}") for side in SIDES]
        for number, record in numbered(path, ("prompt", *SIDES))
    ]
    fits = lambda answer: answer[1][1 : seq_len + 1].any()
    pairs = [(chosen, rejected) for chosen, rejected in records if fits(chosen) and fits(rejected)]
    if len(pairs) < 2:
        raise InputError(
            f"data {spec!r}: {len(pairs)} of {len(records):,} pairs have both answers within "
            f"batch.seq_len={seq_len} tokens; two are needed, one to train on and one held "
            "out: raise batch.seq_len"
        )
    same = sum(np.array_equal(chosen[0], rejected[0]) for chosen, rejected in pairs)
    if same == len(pairs):
        raise InputError(
            f"data {spec!r}: chosen and rejected are the same in all {same:,} pairs; give another "
            "answer as rejected"
        )
    first = len(pairs) - max(1, int(HELD_OUT_FRACTION * len(pairs)))
    out, cut = len(records) - len(pairs), sum(len(ids) > seq_len + 1 for p in pairs for ids, _ in p)
    description = (
        f"{len(pairs):,} pairs of {path} by {encoder.description}, {out:,} that do not fit left "
        f"out, {cut:,} answers cut at {seq_len} tokens, {same:,} with one answer twice"
    )
    train, held_out = (PairedRows(part, seq_len) for part in (pairs[:first], pairs[first:]))
    return TokenSplit(train, held_out, description)


def _encoded(tokenizer: Tokenizer, record: Any, side: str, where: str) -> Encoded:
    """Ids of the prompt and one of its answers, and which count."""
    if not isinstance(record, dict):
        raise InputError(
            f"{where}: expected a table of prompt, chosen and rejected: {record!r:.80}"
        )
    if record.get(side) is None:
        raise InputError(f"{where}: no {side!r}; it has {', '.join(record) or 'nothing'}")
    prompt, answer = record.get("prompt"), record[side]
    if isinstance(prompt, str) and isinstance(answer, str):
        [(ids, starts)] = tokenizer.encode([prompt + answer])
        end = [] if tokenizer.end is None else [tokenizer.end]
        counted = np.append(starts >= len(prompt), np.ones(len(end), bool))
        return np.append(ids, np.array(end, np.int32)), counted
    chat = _messages(answer, ASSISTANT, where)
    if chat and chat[0]["role"] == ASSISTANT:  # else it has the prompt itself
        chat = [*_messages(prompt or [], "user", where), *chat]
    if not chat or chat[-1]["role"] != ASSISTANT:
        raise InputError(f"{where}: {side} does not end with a message of the assistant")
    [(ids, counted)] = encode_chats(tokenizer, [chat])
    begins = np.flatnonzero(np.diff(counted, prepend=False) & counted)
    counted[: begins[-1] if len(begins) else 0] = False
    return ids, counted


def _messages(value: Any, role: str, where: str) -> list[dict[str, str]]:
    """The messages of a chat; a text is one of `role`."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    texts = lambda m: (
        isinstance(m, dict) and all(isinstance(m.get(k), str) for k in ("role", "content"))
    )
    if not isinstance(value, list) or not all(map(texts, value)):
        raise InputError(
            f"{where}: prompt, chosen and rejected are texts or lists of messages with 'role' and "
            f"'content', got {value!r:.80}"
        )
    return value
