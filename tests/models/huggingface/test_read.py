"""Published config.json files (their architecture keys, copied) against the presets."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scaling.meshes.errors import InputError
from scaling.models.accounting import count_parameters
from scaling.models.config import LayerKind, Mla, Moe, Yarn
from scaling.models.huggingface.export import to_huggingface
from scaling.models.huggingface.read import read_config, translate
from scaling.models.positions import rotary_frequencies
from scaling.models.presets import model_from, preset

# The architecture keys of the files on huggingface.co, by preset.
PUBLISHED = json.loads(Path(__file__).with_name("published.json").read_text())
GPT2, LLAMA, MISTRAL, MIXTRAL, QWEN2_5_7B, QWEN3, QWEN3_MOE, DEEPSEEK = PUBLISHED.values()
LLAMA3_SCALING = LLAMA["rope_scaling"]


@pytest.mark.parametrize("name", sorted(PUBLISHED.keys() - {"deepseek-v3"}))
def test_a_published_file_is_the_preset(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED[name]))
    assert read_config(tmp_path) == preset(name)
    assert read_config(tmp_path / "config.json") == preset(name)


def test_deepseek_v3_is_refused_with_everything_that_does_not_fit():
    """One message names all of it; without those keys the file is the preset, but for YaRN."""
    inexpressible = {"num_nextn_predict_layers": 1, "moe_layer_freq": 2}
    with pytest.raises(InputError) as refusal:
        translate(DEEPSEEK | inexpressible, "config.json")
    assert all(f"{key}={value!r}" in str(refusal.value) for key, value in inexpressible.items())
    stretched = translate({**DEEPSEEK, "num_nextn_predict_layers": 0}, "config.json")
    assert stretched.yarn == Yarn(40, 4096, mscale=1.0, mscale_all_dim=1.0)
    assert replace(stretched, yarn=None) == preset("deepseek-v3")


def test_experts_of_qwen3_are_counted_in_both_spellings_but_not_twice():
    """Published files say num_experts; transformers 5 writes num_local_experts."""
    new = {k: v for k, v in QWEN3_MOE.items() if k != "num_experts"} | {"num_local_experts": 128}
    assert translate(new, "c") == preset("qwen3-30b-a3b")
    with pytest.raises(InputError, match="cannot express num_local_experts=64"):
        translate(QWEN3_MOE | {"num_local_experts": 64}, "c")


def test_yarn_is_read_in_both_spellings_and_begins_at_the_longest_sequence_by_default():
    yarn = {"rope_type": "yarn", "factor": 4.0, "attention_factor": None}
    said = translate(QWEN3 | {"rope_scaling": yarn, "max_position_embeddings": 32768}, "c")
    assert said.yarn == Yarn(4.0, 32768) and said.rope_scaling is None
    new = {k: v for k, v in QWEN3.items() if not k.startswith("rope")}
    new["rope_parameters"] = yarn | {"rope_theta": 1e6, "original_max_position_embeddings": 32768}
    assert translate(new, "c") == said


def test_direct_queries_of_latent_attention_are_read():
    """DeepSeek's light models write q_lora_rank null: no compression of queries."""
    small = DEEPSEEK | {"q_lora_rank": None, "rope_scaling": None, "num_nextn_predict_layers": 0}
    assert translate(small, "c").mla == Mla(None, 512, 128, 64, 128)


@pytest.mark.parametrize(
    ("base", "change", "named"),
    [
        (LLAMA, {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
        (LLAMA, {"rope_parameters": {"partial_rotary_factor": 0.5}}, "rope_parameters=.*0.5"),
        (LLAMA, {"attention_bias": True}, "attention_bias=True, mlp_bias=False"),
        (LLAMA, {"hidden_act": "gelu"}, "hidden_act='gelu'"),
        (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        (LLAMA, {"final_logit_softcapping": 30.0}, "final_logit_softcapping=30.0"),
        (LLAMA, {"sliding_window": 4096}, "sliding_window=4096"),
        (GPT2, {"activation_function": "gelu"}, "activation_function='gelu'"),
        (GPT2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        (GPT2, {"rope_theta": 1e4}, "rope_theta=10000.0"),
        (QWEN2_5_7B, {"use_mrope": True}, "use_mrope=True"),
        (QWEN3, {"attention_bias": True}, "attention_bias=True"),
        (QWEN3_MOE, {"mlp_only_layers": [0]}, r"mlp_only_layers=\[0\]"),
        (DEEPSEEK, {"scoring_func": "softmax"}, "scoring_func='softmax'"),
        (DEEPSEEK, {"topk_method": "greedy"}, "topk_method='greedy'"),
        (MISTRAL, {"layer_types": ["chunked_attention"] * 32}, "chunked_attention"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(base, change, named):
    with pytest.raises(InputError, match=f"c.json: a model here cannot express.*{named}"):
        translate(base | change, "c.json")


def test_a_null_setting_says_nothing():
    assert translate(LLAMA | {"final_logit_softcapping": None}, "c") == preset("llama3-8b")


def test_qwen2_has_biases_on_q_k_and_v_only_and_tied_embeddings_where_it_says_so():
    """Qwen2.5-7B has 7,615,616,512 parameters, the total of its safetensors index."""
    config = translate(QWEN2_5_7B, "c")
    assert config.qkv_bias and not config.bias and config.sliding_window is None
    assert count_parameters(config).total == 7_615_616_512
    assert translate(QWEN2_5_7B | {"tie_word_embeddings": True}, "c").tied_embeddings


def test_biases_everywhere_are_read():
    assert translate(LLAMA | {"attention_bias": True, "mlp_bias": True}, "c").bias


@pytest.mark.parametrize(
    ("base", "change", "window"),
    [
        (MISTRAL, {}, 4096),
        (MISTRAL, {"sliding_window": None}, None),
        (MISTRAL, {"layer_types": ["full_attention"] * 32}, None),
        (QWEN3, {"sliding_window": 1024}, None),  # switched off
        (QWEN3, {"use_sliding_window": True, "sliding_window": 1024}, None),  # from layer 36 on
        (QWEN3, {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 0}, 9),
        (
            QWEN3,
            {
                "use_sliding_window": True,
                "sliding_window": 9,
                "layer_types": ["sliding_attention"] * 36,
            },
            9,
        ),
    ],
)
def test_sliding_windows_mean_what_transformers_means(base, change, window):
    assert translate(base | change, "c").sliding_window == window


def test_an_absent_window_is_the_default_of_the_family():
    without = {k: v for k, v in MISTRAL.items() if k != "sliding_window"}
    assert translate(without, "c").sliding_window == 4096
    assert translate(without | MIXTRAL_KEYS, "c").sliding_window is None


MIXTRAL_KEYS = {"model_type": "mixtral", "num_experts_per_tok": 2, "num_local_experts": 8}


def test_windows_on_some_layers_are_a_pattern():
    mixed = {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 20}
    seen = [kind.sliding_window for kind in translate(QWEN3 | mixed, "c").layers]
    assert seen == [None] * 20 + [9] * 16
    types = ["sliding_attention", "full_attention"] * 18
    config = translate(QWEN3 | mixed | {"layer_types": types}, "c")
    assert config.layers == (LayerKind(9), LayerKind())
    with pytest.raises(InputError, match="3 layer_types of 36 layers"):
        translate(QWEN3 | mixed | {"layer_types": types[:3]}, "c")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [  # totals of the safetensors indices on huggingface.co
        ("gemma-2-2b", 2_614_341_888),
        ("gemma-2-27b", 27_227_128_320),
        ("gemma-3-1b", 999_885_952),
        ("phi-3-mini", 3_821_079_552),
        ("phi-4", 14_659_507_200),
        ("olmo-2-7b", 7_298_617_344),
        ("olmo-3-7b", 7_298_011_136),
        ("gpt-oss-20b", 20_914_757_184),
        ("gpt-oss-120b", 116_829_156_672),
        ("deepseek-v2", 235_741_434_880),
        # 109 B and 400 B on the cards: Scout's with its encoder of images, of 0.9 B
        ("llama4-scout", 107_769_861_120),
        ("llama4-maverick", 400_711_848_960),
    ],
)
def test_families_with_patterns_have_the_published_size_and_go_there_and_back(name, parameters):
    config = preset(name)
    assert count_parameters(config).total == parameters
    written = to_huggingface(config, 4096)
    assert to_huggingface(translate(written, "c"), 4096) == written


# Of Scout's and Maverick's config.json on huggingface.co, what is no default of the family
LLAMA4 = {
    **{"model_type": "llama4_text", "hidden_size": 5120, "num_hidden_layers": 48},
    **{"intermediate_size": 8192, "vocab_size": 202_048, "num_attention_heads": 40},
    **{"num_key_value_heads": 8, "num_local_experts": 16},
}


SCOUT_ROPE = {
    **{"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0},
    "original_max_position_embeddings": 8192,
}
MAVERICK = {"num_local_experts": 128, "interleave_moe_layer_step": 2, "use_qk_norm": False}


@pytest.mark.parametrize(
    ("name", "change", "total", "active"),
    [  # the sizes on the cards, billions, with their encoders of images
        ("llama4-scout", {"rope_scaling": SCOUT_ROPE}, 109, 17),
        ("llama4-maverick", MAVERICK, 400, 17),
    ],
)
def test_the_text_of_llama_4_has_the_size_on_its_card(name, change, total, active) -> None:
    config = translate({"model_type": "llama4", "text_config": LLAMA4 | change}, "c")
    assert config == preset(name)
    assert np.isfinite(rotary_frequencies(config)).all()
    found = count_parameters(config)
    np.testing.assert_allclose([found.total / 1e9, found.active / 1e9], [total, active], rtol=0.015)
    kinds = [(kind.attention_chunk, kind.is_rotated) for kind in config.layers]
    assert kinds == [(8192, True)] * 3 + [(None, False)]


def test_layers_with_experts_are_each_last_one_of_so_many() -> None:
    listed = list(range(2, 48, 3))
    every = lambda **keys: translate(LLAMA4 | keys, "c").moe.every
    assert every(moe_layers=listed) == every(interleave_moe_layer_step=3, moe_layers=listed) == 3
    for wrong in (listed[1:], listed[:-1], [-1], [5, 3]):
        with pytest.raises(InputError, match="moe_layers"):
            every(moe_layers=wrong)
    with pytest.raises(InputError, match="no_rope_layers of 48"):
        translate(LLAMA4 | {"no_rope_layers": [1, 0]}, "c")


# Architecture keys of config.json files on huggingface.co; totals of their safetensors indices.
PLAIN = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
NEWER = {
    "granite-3.3-2b": (
        PLAIN
        | {
            **{"model_type": "granite", "vocab_size": 49159, "hidden_size": 2048},
            **{"intermediate_size": 8192, "num_hidden_layers": 40, "num_attention_heads": 32},
            **{"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e7},
            **{"tie_word_embeddings": True, "attention_multiplier": 0.015625},
            **{"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0},
        },
        2_533_539_840,
    ),
    "smollm3-3b": (
        PLAIN
        | {
            **{"model_type": "smollm3", "vocab_size": 128_256, "hidden_size": 2048},
            **{"intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16},
            **{"num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 5e6},
            **{"no_rope_layer_interval": 4, "use_sliding_window": False, "sliding_window": None},
        },
        3_075_098_624,
    ),
    "glm-4-9b-0414": (
        {
            **{"model_type": "glm4", "vocab_size": 151_552, "hidden_size": 4096},
            **{"intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32},
            **{"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5},
            **{"attention_bias": True, "hidden_act": "silu", "partial_rotary_factor": 0.5},
        },
        9_400_279_040,
    ),
}


@pytest.mark.parametrize("name", NEWER)
def test_newer_families_have_the_published_size_and_go_there_and_back(name):
    data, parameters = NEWER[name]
    config = translate(data, "c")
    assert count_parameters(config).total == parameters
    written = to_huggingface(config, 4096)
    assert written["model_type"] == data["model_type"] and translate(written, "c") == config


def test_what_a_newer_family_says_is_read():
    granite, smol, glm = (translate(data, "c") for data, _ in NEWER.values())
    assert granite.score_dim == 64**2
    factors = granite.embedding_factor, granite.residual_factor, granite.logit_divisor
    assert factors == (12.0, 0.22, 8.0)
    assert smol.layers == (LayerKind(),) * 3 + (LayerKind(is_rotated=False),)
    assert (glm.norms, glm.rotated_channels, glm.qkv_bias) == ("both", 64, True)
    windows = NEWER["smollm3-3b"][0] | {"use_sliding_window": True, "sliding_window": 9}
    assert translate(windows, "c").layers[3] == LayerKind(9, is_rotated=False)


def test_what_newer_families_cannot_express_is_refused_by_key():
    granite, _ = NEWER["granite-3.3-2b"]
    for wrong in (0.9, 0.0, -0.5, 1e-200):
        with pytest.raises(InputError, match=f"cannot express attention_multiplier={wrong}"):
            translate(granite | {"attention_multiplier": wrong}, "c")
    further = {"model_type": "glm4_moe", "num_nextn_predict_layers": 1, "n_routed_experts": 8}
    with pytest.raises(InputError, match="cannot express .*num_nextn_predict_layers=1"):
        translate(LLAMA | further, "c")


def test_both_rotations_of_gemma_3_are_read_in_both_spellings():
    old = {
        **{"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 1152},
        **{"num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1},
        **{"intermediate_size": 6912, "sliding_window": 512, "sliding_window_pattern": 6},
        **{"rope_theta": 1e6, "rope_local_base_freq": 1e4},
    }
    assert translate(old, "c") == preset("gemma-3-1b")
    new = {key: value for key, value in old.items() if "rope" not in key and "pattern" not in key}
    local = {"rope_type": "default", "rope_theta": 1e4}
    rope = {"full_attention": local | {"rope_theta": 1e6}, "sliding_attention": local}
    assert translate(new | {"rope_parameters": rope}, "c") == preset("gemma-3-1b")
    with pytest.raises(InputError, match="rope_parameters="):
        rope["sliding_attention"] = local | {"rope_type": "linear", "factor": 2.0}
        translate(new | {"rope_parameters": rope}, "c")


def test_rotary_parameters_of_release_5_are_read():
    """transformers 5 writes one table in place of rope_theta and rope_scaling."""
    old = {k: v for k, v in LLAMA.items() if not k.startswith("rope")}
    new = old | {"rope_parameters": LLAMA3_SCALING | {"rope_theta": 500000.0}}
    assert translate(new, "c") == preset("llama3-8b")
    plain = old | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e4}}
    assert translate(plain, "c").rope_theta == 5e4


def test_absent_keys_take_the_defaults_of_transformers():
    """A LLaMA-1 file has neither key-value heads nor rotary settings."""
    keys = "model_type vocab_size hidden_size intermediate_size num_hidden_layers".split()
    first = {k: LLAMA[k] for k in (*keys, "num_attention_heads")}
    config = translate(first, "c")
    assert (config.n_kv_heads, config.head_dim, config.rope_theta) == (32, 128, 10_000.0)
    assert config.norm_eps == 1e-6 and not config.tied_embeddings and config.rope_scaling is None


def test_absent_expert_width_is_the_mlp_width():
    assert translate(MIXTRAL, "c").moe == Moe(8, 2, aux_loss=0.02)


def test_how_experts_are_chosen_is_read_or_takes_the_default_of_transformers():
    qwen = translate(QWEN3_MOE | {"norm_topk_prob": False, "router_aux_loss_coef": 0.5}, "c").moe
    assert (qwen.gate, qwen.normalize_weights, qwen.aux_loss) == ("softmax", False, 0.5)
    bare = {k: v for k, v in QWEN3_MOE.items() if k not in ("norm_topk_prob",)}
    assert not translate(bare, "c").moe.normalize_weights
    light = DEEPSEEK | {"n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.5}
    light |= {"rope_scaling": None, "num_nextn_predict_layers": 0}
    moe = translate(light, "c").moe
    assert (moe.n_groups, moe.groups_per_token, moe.routed_scaling) == (1, 1, 1.5)
    assert (moe.gate, moe.selection_bias) == ("sigmoid", True)
    absent = ("n_group", "topk_group", "routed_scaling_factor", "norm_topk_prob")
    moe = translate({k: v for k, v in light.items() if k not in absent}, "c").moe
    assert (moe.n_groups, moe.groups_per_token, moe.routed_scaling) == (8, 4, 2.5)
    assert moe.normalize_weights


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "model_type 'None' cannot be read; .*known: gpt2"),
        ({"model_type": "lama"}, "did you mean 'llama'"),
        ({"model_type": ["llama"]}, "cannot be read"),
        ({"model_type": "llama"}, "missing 'vocab_size', 'hidden_size'"),
        (LLAMA | {"hidden_size": None}, "missing 'hidden_size'"),
        ({k: v for k, v in MIXTRAL.items() if "experts" not in k}, "missing 'num_local_experts'"),
        (LLAMA | {"hidden_size": "wide"}, "expected int, got 'wide'"),
        (LLAMA | {"num_key_value_heads": 5}, "n_heads=32 is not a multiple of n_kv_heads=5"),
    ],
)
def test_a_file_that_is_no_model_says_why(data, message):
    with pytest.raises(InputError, match=message):
        translate(data, "c.json")


def test_a_file_of_another_family_is_printed_as_a_run_without_what_does_not_fit():
    scaled = LLAMA | {"logit_scale": 0.0625}
    for refused in (scaled, scaled | {"model_type": "cohere"}):
        with pytest.raises(InputError, match="Read as llama without logit_scale") as refusal:
            translate(refused, "c.json")
        run = json.loads(str(refusal.value)[str(refusal.value).index('{"name') :])
        assert model_from(run["model"]) == preset("llama3-8b")


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(InputError, match="cannot read .*nowhere: No such file"):
        read_config(tmp_path / "nowhere")
    broken = tmp_path / "config.json"
    for text, message in (("{", "is not JSON"), ("[]", "expected a JSON object")):
        broken.write_text(text)
        with pytest.raises(InputError, match=message):
            read_config(tmp_path)
    broken.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not a text file"):
        read_config(tmp_path)
