"""Presets against their sources, and every way a run may name its model."""

import json
from dataclasses import asdict, replace

import pytest

from scaling.meshes.errors import InputError
from scaling.models.accounting import count_parameters
from scaling.models.config import ModelConfig, RopeScaling
from scaling.models.presets import model_from, preset


def test_a_model_as_a_table_spells_out_every_field():
    tiny = asdict(preset("tiny"))
    assert tiny["n_kv_heads"] == 2 and tiny["head_dim"] == 16
    assert tiny["moe"] is None and tiny["sliding_window"] is None
    assert set(tiny) == set(ModelConfig.__dataclass_fields__)


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(InputError, match="unknown model 'llama3-7b'; did you mean 'llama3-70b'"):
        preset("llama3-7b")
    with pytest.raises(InputError, match="run.json: model: unknown model 'gpt2-124'.*'gpt2-124m'"):
        model_from("gpt2-124", "run.json: model")


def test_a_preset_is_named_by_a_string_or_by_a_key():
    assert model_from("qwen3-8b") == model_from({"preset": "qwen3-8b"}) == preset("qwen3-8b")


def test_further_keys_replace_fields_of_the_preset():
    cut = model_from({"preset": "llama3-8b", "n_layers": 4, "sliding_window": 1024})
    assert cut == replace(preset("llama3-8b"), n_layers=4, sliding_window=1024)


def test_keys_inside_experts_replace_single_fields():
    skewed = model_from({"preset": "mixtral-8x7b", "moe": {"skew": 1.5}})
    assert skewed.moe == replace(preset("mixtral-8x7b").moe, skew=1.5)
    assert model_from({"preset": "mixtral-8x7b", "moe": None}).moe is None


def test_derived_fields_follow_a_replaced_width():
    """gpt2's heads are d_model / n_heads wide and as many as its key heads; both are derived."""
    wide = model_from({"preset": "gpt2-124m", "d_model": 1536, "n_heads": 16})
    assert (wide.head_dim, wide.n_kv_heads) == (96, 16)
    qwen = model_from({"preset": "qwen3-0.6b", "d_model": 512})
    assert (qwen.head_dim, qwen.n_kv_heads) == (128, 8)  # stated, not derived


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"preset": "tiny", "d_modle": 1}, "m: unknown key 'd_modle'; did you mean 'd_model'"),
        ({"preset": "tiny", "n_heads": 3}, "m: d_model=64 is not divisible by n_heads=3"),
        ({"preset": "tiny", "norm": "batch"}, "m: norm: 'batch' is not a choice"),
        ({"preset": "tiny", "config": "x.json"}, "either 'preset' or 'config', not both"),
        ({"preset": 3}, "m: preset: expected a string, got 3"),
        ({"vocab_size": 8}, "m: missing 'd_model'"),
        ({}, "m: missing 'vocab_size'"),
        ([], "m: expected a name, a path or a table"),
        ("no/such/config.json", "cannot read .*No such file"),
        ({"config": "no/such/folder"}, "m: cannot read no/such/folder: No such file"),
    ],
)
def test_a_model_that_cannot_be_read_says_why(data, message):
    with pytest.raises(InputError, match=message):
        model_from(data, "m")


def test_a_hugging_face_file_works_wherever_a_model_is_named(tmp_path):
    file = tmp_path / "config.json"
    shape = {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    file.write_text(json.dumps({"model_type": "gpt2", **shape}))
    config = model_from(str(file))
    assert config.d_ff == 128
    assert model_from(str(tmp_path)) == model_from({"config": str(tmp_path)}) == config
    assert model_from({"config": str(file), "n_layers": 5}) == replace(config, n_layers=5)


def test_llama3_is_release_3_1():
    """config.json of meta-llama/Llama-3.1-8B and Llama-3.2-1B."""
    assert preset("llama3-8b").rope_scaling == RopeScaling(8.0, 1.0, 4.0, 8192)
    assert preset("llama3-1b").rope_scaling == RopeScaling(32.0, 1.0, 4.0, 8192)
    assert preset("llama3-8b").rope_theta == 500_000.0
    assert preset("llama3-1b").tied_embeddings and not preset("llama3-8b").tied_embeddings


def test_the_gpt_of_the_3090_report_has_305_million_parameters():
    """Hidden 1024, 16 layers, sequence 512: only an untied 50,257 head rounds to 305 M."""
    gpt = preset("gpt-305m")
    assert round(count_parameters(gpt).total / 1e6) == 305
    assert round(count_parameters(replace(gpt, tied_embeddings=True)).total / 1e6) == 254


def test_demo_has_about_a_million_parameters():
    assert 0.8e6 < count_parameters(preset("demo")).total < 1.3e6
