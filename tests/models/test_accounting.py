"""The accounting against published figures, hand derivations and its own laws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.models.accounting import (
    block_parameters,
    count_parameters,
    forward_flops,
    hardware_flops,
    model_flops,
    train_flops,
)
from scaling.models.accounting.matrices import block_stacks, matrix_of_device
from scaling.models.config import ModelConfig
from scaling.models.presets import preset, preset_names

# Totals of the released weights: each model's card and safetensors index on huggingface.co.
RELEASED = {
    "gpt2-124m": 124_439_808,
    "gpt2-355m": 354_823_168,
    "gpt2-774m": 774_030_080,
    "gpt2-1.5b": 1_557_611_200,
    "tinyllama-1.1b": 1_100_048_384,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-1b": 1_235_814_400,
    "llama3-3b": 3_212_749_824,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "qwen3-0.6b": 596_049_920,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-v3": 671_026_419_200,  # without the prediction module, with the router's biases
    "mpt-30b": 29_975_214_080,  # as printed by llm-foundry's benchmarks: 29.975214 B
    "mpt-70b": 64_862_437_376,
}


@pytest.mark.parametrize("name", RELEASED)
def test_parameters_are_those_of_the_released_model(name):
    assert count_parameters(preset(name)).total == RELEASED[name]


@pytest.mark.parametrize(
    ("name", "billions"),
    [("mixtral-8x7b", 12.9), ("deepseek-v3", 37), ("qwen3-235b-a22b", 22), ("qwen3-30b-a3b", 3.3)],
)
def test_active_parameters_are_those_of_the_model_card(name, billions):
    assert count_parameters(preset(name)).active / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize("name", [n for n in preset_names() if n.startswith("megatron-")])
def test_megatron_parameters_follow_the_formula_of_its_paper(name):
    """P = 12 l h^2 (1 + 13/(12h) + (V+s)/(12lh)), arXiv 2104.04473 eq. 2. Final norm: extra."""
    c = preset(name)
    l, h, V, s = c.n_layers, c.d_model, c.vocab_size, c.max_positions
    assert count_parameters(c).total == 12 * l * h * h + 13 * l * h + (V + s) * h + 2 * h


def test_learned_positions_without_a_length_are_refused():
    with pytest.raises(InputError, match="no length: give max_positions"):
        count_parameters(ModelConfig(10, 8, 1, 2, 16, positions="learned"))


def test_forward_flops_by_hand():
    """B=2, S=3: 2 FLOPs per weight and token, and S x S scores whatever the window."""
    c = ModelConfig(100, 8, 3, 4, 16, n_kv_heads=2, head_dim=6, sliding_window=1)
    flops = forward_flops(c, 2, 3)
    attention = 3 * 2 * (2 * 4 * 3 * 3 * 6)
    assert flops.components["scores"] == flops.components["values"] == attention
    assert flops.components["k"] == 3 * 2 * 6 * 8 * 12
    assert flops.components["head"] == 2 * 6 * 8 * 100
    assert flops.groups["mlp"] == 3 * 2 * 6 * 3 * 128
    assert flops.groups["projections"] == 3 * 2 * 6 * (2 * 192 + 2 * 96)


def test_model_flops_are_six_per_weight_and_token_plus_attention():
    """Llama 3 8B at 8,192 tokens: 8.03 B less the embedding table and the norms."""
    c = preset("llama3-8b")
    norms = 65 * 4096
    weights = 8_030_261_248 - 128_256 * 4096 - norms
    tokens = 4 * 8192
    attention = 6 * 32 * 32 * (128 + 128) * 8192 * tokens
    assert model_flops(c, 4, 8192) == 6 * weights * tokens + attention
    assert model_flops(c, 4, 8192, causal=True) == 6 * weights * tokens + attention // 2


def test_model_flops_follow_the_formula_of_megatron():
    """96 B s l h^2 (1 + s/6h + V/16lh) counts full recomputation (arXiv 2104.04473, eq. 3): our
    three forward passes are 3/4 of it but for the head, which is not computed again."""
    c, B, s = preset("megatron-175b"), 4, 2048
    l, h, V = c.n_layers, c.d_model, c.vocab_size
    blocks = 72 * B * s * l * h * h + 12 * B * s * s * l * h
    assert model_flops(c, B, s) == blocks + 6 * B * s * h * V


def test_recomputation_by_policy():
    """GPT block of width D: q, k, v, o are D^2 each, up and down 4 D^2, per token and times two."""
    c, B, S = preset("megatron-22b"), 1, 128
    f = forward_flops(c, B, S).components
    extra = {p: train_flops(c, B, S, p).total - 3 * sum(f.values()) for p in ("none", "full")}
    assert extra["none"] == 0
    assert extra["full"] == sum(f.values()) - f["head"] - f["down"]
    selective = train_flops(c, B, S, "selective").total - 3 * sum(f.values())
    assert selective == f["scores"] + f["o"]


def test_kept_queries_are_normalised_so_qk_norm_needs_the_projections_again():
    c = preset("tiny")
    plain = train_flops(c, 1, 64, "selective").components
    normed = train_flops(replace(c, qk_norm=True), 1, 64, "selective").components
    again = {name for name in plain if normed[name] > plain[name]}
    assert again == {"q", "k", "v"}


def test_the_last_product_of_an_expert_is_not_needed_again():
    """The router's weight is multiplied to its input, whose gradient needs no output."""
    f = train_flops(preset("mixtral-8x7b"), 1, 64, "full").components
    assert 4 * f["expert_down"] == 3 * f["expert_up"] == 3 * f["expert_gate"]
    d = train_flops(preset("deepseek-v3"), 1, 64, "full").components
    assert 4 * d["shared_down"] == 3 * d["shared_up"]


@pytest.mark.parametrize("name", ["llama3-8b", "mistral-7b", "deepseek-v3"])
def test_hardware_flops_add_recomputation_to_model_flops(name):
    c = preset(name)
    none, selective, full = (hardware_flops(c, 2, 512, p) for p in ("none", "selective", "full"))
    assert none == model_flops(c, 2, 512) < selective < full < 4 / 3 * none


def test_an_unknown_policy_names_the_nearest():
    with pytest.raises(InputError, match="remat 'selectiv'.*did you mean 'selective'"):
        train_flops(preset("tiny"), 1, 8, "selectiv")


def test_arrays_of_configurations_are_computed_at_once():
    """Also where a 64-bit integer would overflow: one step of 405 B on 100 M tokens."""
    c = preset("llama3-405b")
    batch, seq = np.array([[1], [12_000]]), np.array([2048, 8192, 131_072])
    flops = model_flops(c, batch, seq)
    assert flops.shape == (2, 3) and flops.max() > 2**63
    for i in range(2):
        for j in range(3):
            exact = model_flops(c, int(batch[i, 0]), int(seq[j]))
            assert flops[i, j] == pytest.approx(exact, rel=1e-12)
    assert model_flops(c, np.int64(12_000), np.int64(131_072)) > 2**63


PRESETS = st.sampled_from(preset_names()).map(preset)
SIZES = st.integers(1, 4096)


@given(PRESETS)
def test_parameters_grow_with_layers_by_the_blocks_of_a_pattern(config):
    pattern = config.pattern_length
    deeper = replace(config, n_layers=config.n_layers + pattern)
    more = count_parameters(deeper).total - count_parameters(config).total
    experts = pattern // config.moe.every if config.moe else 0
    kinds = [False] * (pattern - experts) + [True] * experts
    assert more == sum(sum(block_parameters(config, moe).values()) for moe in kinds) > 0


@given(PRESETS)
def test_active_parameters_are_at_most_all(config):
    counts = count_parameters(config)
    assert 0 < counts.active <= counts.total == sum(counts.components.values())
    assert (counts.active == counts.total) == (config.moe is None)


@given(PRESETS, SIZES, SIZES, st.booleans())
def test_model_flops_grow_in_proportion_to_the_batch(config, batch, seq, causal):
    one = model_flops(config, 1, seq, causal)
    assert model_flops(config, batch, seq, causal) == batch * one


@given(PRESETS, SIZES, SIZES, SIZES)
def test_a_window_as_long_as_the_sequence_is_no_window(config, batch, seq, more):
    config = replace(config, layers=())
    full = replace(config, sliding_window=None)
    wide = replace(config, sliding_window=seq + more)
    narrow = replace(config, sliding_window=seq)
    assert model_flops(full, batch, seq) == model_flops(wide, batch, seq)
    assert model_flops(full, batch, seq) == model_flops(narrow, batch, seq)
    assert model_flops(replace(config, sliding_window=1), batch, seq + 1) < model_flops(
        full, batch, seq + 1
    )


@given(PRESETS, SIZES, SIZES)
def test_without_a_window_the_model_is_credited_what_runs(config, batch, seq):
    config = replace(config, sliding_window=None, layers=())
    assert model_flops(config, batch, seq) == 3 * forward_flops(config, batch, seq).total
    groups = forward_flops(config, batch, seq).groups
    assert sum(groups.values()) == forward_flops(config, batch, seq).total


@pytest.mark.parametrize("tensor", [1, 4, 8, 16])
def test_a_device_of_tensor_has_whole_heads_and_hidden_units(tensor):
    config = preset("llama2-13b")  # 40 heads; the matrix of its queries is square
    shapes = {s.name: matrix_of_device(config, s, tensor) for s in block_stacks(config, moe=False)}
    width = 128 * -(-40 // tensor)
    assert shapes["q"] == shapes["k"] == shapes["v"] == (5120, pytest.approx(width))
    assert shapes["o"] == (pytest.approx(width), 5120)
    assert shapes["gate"] == shapes["up"] == (5120, 13824 / tensor)
    assert shapes["down"] == (13824 / tensor, 5120)
