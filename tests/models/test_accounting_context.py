"""FLOPs and bytes of one device with `context`, by hand and against a count of what meets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.models.accounting import exchanged_bytes, scores_share
from scaling.models.attention_kernels.zigzag import zigzag_positions
from scaling.models.config import ModelConfig

MODEL = ModelConfig(64, d_model=32, n_layers=2, n_heads=8, n_kv_heads=2, head_dim=16, d_ff=64)


def windowed(window: int | None) -> ModelConfig:
    return ModelConfig(
        64, d_model=32, n_layers=2, n_heads=8, n_kv_heads=2, d_ff=64, sliding_window=window
    )


def test_one_device_takes_every_score():
    assert scores_share(MODEL, 100, 1) == 1.0


@given(st.integers(2, 64), st.integers(1, 8))
def test_several_take_half_of_the_scores_and_half_a_chunk_per_token_more(context, chunk):
    share = scores_share(MODEL, 2 * context * chunk, context)
    assert share == pytest.approx((2 * context + 1) / (4 * context))


@given(st.integers(2, 6), st.integers(1, 6), st.none() | st.integers(1, 40))
def test_no_score_that_is_needed_is_left_out(context, chunk, window):
    """The count of causal pairs in the window, token by token, is no larger."""
    seq = 2 * context * chunk
    places = np.concatenate([zigzag_positions(i, context, 2 * chunk) for i in range(context)])
    distance = places[:, None] - places
    needed = ((distance >= 0) & (distance < (window or seq))).sum()
    assert scores_share(windowed(window), seq, context) * seq**2 >= needed


def test_a_window_of_a_chunk_is_cheaper():
    shares = [scores_share(windowed(w), 1024, 8) for w in (None, 1024, 64, 8)]
    assert shares == sorted(shares, reverse=True) and shares[-1] < shares[0] / 4


def test_exchanged_bytes_by_hand():
    # 3 sequences x 64/4 tokens x keys and values x 2/2 heads of 16 x 2 bytes
    assert exchanged_bytes(MODEL, 3, 64, 4, tensor=2) == 3 * 16 * 2 * 1 * 16 * 2
    assert exchanged_bytes(MODEL, 3, 64, 4, dtype="fp32") == 2 * exchanged_bytes(MODEL, 3, 64, 4)
