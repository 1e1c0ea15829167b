"""Documents packed into one sequence compute what each computes alone; padding has no expert."""

import jax
import numpy as np
import pytest

from scaling.models.documents import documents_of
from scaling.models.transformer import Transformer
from tests.harness import MODELS, SEQ_LEN
from tests.models.one_device import FP32, jit, logits_and_routing, perturbed

pytestmark = pytest.mark.usefixtures("one_device")

LENGTHS = (9, 14)  # of the documents; what is left of the sequence is padding


def test_positions_begin_anew_in_each_document():
    segments_BS = np.array([[1, 1, 1, 2, 2, 0, 0], [5, 5, 5, 5, 5, 5, 5]])
    positions_BS = jit(lambda x: documents_of(x).positions_BS)(segments_BS)
    assert positions_BS.tolist() == [[0, 1, 2, 0, 1, 0, 1], [0, 1, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize(
    "name",
    [
        "odd",
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("gpt", "direct", "plain experts")),
        "llama-4",
    ],
)
def test_a_packed_document_has_the_logits_that_it_has_alone(name: str) -> None:
    rows = np.random.default_rng(0).integers(127, size=(len(LENGTHS), SEQ_LEN)).astype(np.int32)
    packed = np.concatenate([row[:n] for row, n in zip(rows, LENGTHS, strict=True)])
    packed = np.pad(packed, (0, SEQ_LEN - len(packed)))[None]
    numbers = np.repeat([1, 2, 0], [*LENGTHS, SEQ_LEN - sum(LENGTHS)]).astype(np.int32)[None]
    model = perturbed(Transformer(MODELS[name], FP32, jax.random.key(0)))
    alone_BSV = np.asarray(jit(Transformer.__call__)(model, rows))
    logits_BSV, routing = jit(logits_and_routing)(model, packed, numbers)
    logits_BSV = np.asarray(logits_BSV)
    start = 0
    for alone_SV, length in zip(alone_BSV, LENGTHS, strict=True):
        found_SV = logits_BSV[0, start : start + length]
        np.testing.assert_allclose(found_SV, alone_SV[:length], rtol=1e-4, atol=1e-4)
        start += length
    if routing is not None:  # padding has no expert
        assigned = sum(LENGTHS) * MODELS[name].moe.experts_per_token
        np.testing.assert_array_equal(routing.load_E.sum(axis=1), assigned)
