"""Activation bytes and the KV cache against published counts and their own laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.models.accounting import activation_bytes, activation_tensors, kv_cache_bytes
from scaling.models.presets import preset, preset_names

PRESETS = st.sampled_from(preset_names()).map(preset)
SIZES = st.integers(1, 4096)


def test_a_gpt_block_keeps_what_korthikanti_counts():
    """arXiv 2205.05198 eq. 1: 34 s b h + 5 a s^2 b bytes, of which dropout, absent here, takes two
    masks of s b h, one of a s^2 b, and the dropped probabilities, 2 a s^2 b."""
    c, s = preset("megatron-22b"), 2048
    kept = activation_bytes(c, 1, s, attention="unfused")
    h, a = c.d_model, c.n_heads
    assert kept.pop("probabilities") == 2 * a * s * s
    assert sum(kept.values()) == 32 * s * h


def test_full_keeps_the_block_input_only():
    assert activation_bytes(preset("llama3-8b"), 2, 10, "full") == {
        "block_input": 2 * 10 * 4096 * 2
    }


def test_selective_keeps_the_named_tensors():
    """Llama 3 8B: block input, q, k, v, attention output and log-sum-exp, MLP gate and up."""
    kept = activation_bytes(preset("llama3-8b"), 1, 1, "selective")
    widths = {"block_input": 4096, "q": 4096, "k": 1024, "v": 1024, "attention_output": 4096}
    widths |= {"gate": 14336, "up": 14336}
    assert kept == {name: 2 * width for name, width in widths.items()} | {"log_sum_exp": 4 * 32}


def test_softmax_statistics_stay_in_fp32():
    bf16 = activation_bytes(preset("tiny"), 1, 8, dtype="bf16")
    fp32 = activation_bytes(preset("tiny"), 1, 8, dtype="fp32")
    assert bf16["log_sum_exp"] == fp32["log_sum_exp"] and 2 * bf16["q"] == fp32["q"]


def test_experts_keep_one_copy_per_chosen_expert():
    c = preset("mixtral-8x7b")
    kept = activation_bytes(c, 1, 1)
    assert kept["expert_up"] == 2 * 2 * 14336 and kept["expert_input"] == 2 * 2 * 4096
    dense = activation_bytes(c, 1, 1, moe=False)
    assert "up" in dense and "router_probabilities" not in dense


def test_key_value_cache_per_token():
    """Llama 3 8B: 2 x 32 x 8 x 128 x 2 B = 128 KiB; DeepSeek-V3: 61 x 576 x 2 B = 70,272 B."""
    assert kv_cache_bytes(preset("llama3-8b")) == 128 * 1024
    assert kv_cache_bytes(preset("deepseek-v3")) == 70_272
    assert kv_cache_bytes(preset("llama3-8b"), 1000, "fp8") == 1000 * 64 * 1024
    assert kv_cache_bytes(preset("llama3-8b"), 1000, "int4") == 1000 * 32 * 1024


@given(PRESETS, SIZES, st.sampled_from(["flash", "unfused"]))
def test_a_stricter_policy_keeps_less(config, seq, attention):
    none, some, full = (
        activation_bytes(config, 1, seq, remat, attention=attention)
        for remat in ("none", "selective", "full")
    )
    assert set(full) < set(some) < set(none)
    assert set(none) == {t.name for t in activation_tensors(config, seq, attention)}


def test_an_unknown_format_is_named():
    with pytest.raises(InputError, match="dtype='bf17'.*'bf16'"):
        activation_bytes(preset("tiny"), 1, 8, dtype="bf17")
