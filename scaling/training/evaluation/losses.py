"""The mean loss of a trained model per token of whole files.

    loss            nats per token that counts, whatever the batch and the mesh
    perplexity      exp(loss)
    bits per byte   loss / ln 2 x tokens / bytes of the text (arXiv 2101.00027, section 3.1)

A stream of tokens is cut into sequences as for training, except that none of it is held out and the
rest at its end is used: every token is predicted once, but the first. In a run on packed documents,
and in chats, each document is predicted by itself, from its first token; in chats what the
assistant says counts.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError
from scaling.models.transformer import Transformer
from scaling.run import Run
from scaling.training.data.packing import PackedRows, TokenizedDocuments
from scaling.training.data.sources import open_data, open_whole
from scaling.training.data.token_file import Stream, pieces
from scaling.training.data.tokens import Windows, check_ids, parts_of
from scaling.training.evaluation.scores import TokenRow, row_of, scores
from scaling.training.trained_model import tokenizer_of

HELD_OUT = "held-out part of"


@dataclass(frozen=True)
class Loss:
    """The mean loss of some data."""

    data: str
    tokens: int  # that count
    loss: float  # nats per token
    bits_per_byte: float | None = None  # of text; None: of chats and of ids whose text is not known

    @property
    def perplexity(self) -> float:
        """exp(loss); infinite where that is too large for a float."""
        return float(np.exp(np.float64(self.loss)))

    def to_dict(self) -> dict[str, Any]:
        """As JSON, what is not finite as null."""
        finite = lambda x: x if x is not None and math.isfinite(x) else None
        return {
            "data": self.data,
            "tokens": self.tokens,
            "loss": finite(self.loss),
            "perplexity": finite(self.perplexity),
            "bits_per_byte": finite(self.bits_per_byte),
        }


@dataclass(frozen=True, eq=False)
class EvaluatedTokens:
    """Tokens whose mean loss is asked for."""

    data: str  # their name
    rows: Iterable[TokenRow]
    tokens: int  # of the whole file
    text_bytes: int | None  # of the text that they are; None: not known


def open_file(spec: str, run: Run) -> EvaluatedTokens:
    """All of a file or folder that can be trained on (`scaling.training.data.sources`).

    Raises:
        InputError: nothing there, no token that can be predicted, or text for a model of ids whose
            tokenizer the run does not name.
    """
    if not spec.endswith(".bin"):
        tokenizer_of(run)
    return _evaluated(spec, open_whole(spec, run.model.vocab_size, run.train.tokenizer), run)


def held_out(trained: Run, run: Run) -> Iterator[EvaluatedTokens]:
    """Yields the part of a run's data that was held out from training; of a mixture each source's.

    Args:
        trained: the run as it was trained: its sequence length decides where the part begins.

    Raises:
        InputError: the data is not where it was.
    """
    if trained.train.pairs:
        raise InputError(
            "the run was trained on pairs of answers (train.loss dpo), and a loss is of texts or "
            "chats: name some with --data; its own held-out figures are in metrics.jsonl"
        )
    source = open_data(trained.train, trained.model.vocab_size, trained.batch.seq_len)
    for name, part, _ in parts_of(source):
        spec = str(name or trained.train.data)
        documents = part.held_out.documents
        of_bytes = run.train.tokenizer is None and not spec.endswith(".bin")
        size = None
        if of_bytes and isinstance(part.held_out, Windows):  # 0 is between texts
            size = sum(map(np.count_nonzero, pieces(documents.ids)))
        documents = replace(documents, text_bytes=size)
        yield _evaluated(f"{HELD_OUT} {spec}", documents, run)


def mean_loss(model: Transformer, run: Run, evaluated: EvaluatedTokens) -> Loss:
    """The mean loss of all tokens that count."""
    nats, tokens = 0.0, 0
    for score in scores(model, run, evaluated.rows):
        nats, tokens = nats - score.log_likelihood, tokens + score.tokens
    loss, size = nats / tokens, evaluated.text_bytes
    bits = loss / math.log(2) * evaluated.tokens / size if size else None
    return Loss(evaluated.data, tokens, loss, bits)


def total(losses: Sequence[Loss]) -> Loss:
    """The mean over the tokens of several files."""
    tokens = sum(loss.tokens for loss in losses)
    return Loss("all", tokens, sum(loss.loss * loss.tokens for loss in losses) / tokens)


def _evaluated(name: str, documents: TokenizedDocuments, run: Run) -> EvaluatedTokens:
    """Documents by themselves where some of their tokens do not count, or training had them so."""
    ids, alone = documents.ids, run.train.documents == "packed" and len(documents) > 1
    if alone or documents.counted is not None:
        packed = PackedRows(documents, run.batch.seq_len, f"data {name!r}")
        rows: Iterable[TokenRow] = (TokenRow(*row) for row in packed)
    elif len(ids) < 2:
        raise InputError(f"data {name!r} has {len(ids)} token, and none before it to predict it by")
    else:
        rows = _windows(ids, run, f"data {name!r}")
    return EvaluatedTokens(name, rows, len(ids), documents.text_bytes)


def _windows(ids: Stream, run: Run, where: str) -> Iterator[TokenRow]:
    """The sequences of a stream; the last one may be shorter."""
    for start in range(0, len(ids) - 1, run.batch.seq_len):
        window = np.asarray(ids[start : start + run.batch.seq_len + 1], np.int32)
        check_ids(window, run.model.vocab_size, where)
        yield row_of(window, 1)
