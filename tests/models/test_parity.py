"""Logits equal those that Hugging Face's transformers gave for the same files.

`tests/models/parity` holds a small random model of each family as transformers saved it, tokens and
its logits (`make parity PARITY_ARGS=--store` made them, with transformers 5.23.0 and 5.24.0).
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from experiments.parity.families import FAMILIES
from experiments.parity.ours import load
from scaling.meshes.shape import MeshShape

STORED = Path(__file__).parent / "parity"
TOLERANCE = 2e-5  # of the largest logit: float32, sums in another order
ONE = MeshShape()


def difference(folder: Path, mesh: MeshShape = ONE) -> float:
    """The largest difference of a logit, over the largest logit."""
    reference = load_file(folder / "logits.safetensors")
    _, logits = load(folder, reference["tokens"], mesh)
    assert logits.shape == reference["logits"].shape and np.abs(logits).max() > 1
    return float(np.abs(logits - reference["logits"]).max() / np.abs(reference["logits"]).max())


# Others have nothing that is not in one of the rest.
LIKE_OTHERS = {"mistral", "qwen2", "qwen3_moe"} | {
    *("gemma", "granitemoe", "glm", "olmoe", "exaone4", "seed_oss", "starcoder2"),
}


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=[pytest.mark.slow] * (f in LIKE_OTHERS)) for f in FAMILIES]
)
def test_logits_are_those_of_transformers(family: str) -> None:
    assert difference(STORED / family) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers_on_a_mesh(family: str) -> None:
    heads = json.loads((STORED / family / "config.json").read_text()).get("num_key_value_heads", 2)
    mesh = MeshShape(fsdp=2, tensor=2) if heads % 2 == 0 else MeshShape(data=2)
    assert difference(STORED / family, mesh) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("gpt2", {"layer_norm_epsilon": 1e-2}),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
        ("qwen3", {"use_sliding_window": False}),
        ("qwen3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
        ("mixtral", {"num_experts_per_tok": 1}),
        ("qwen3_moe", {"norm_topk_prob": None}),
        ("deepseek_v3", {"rope_interleave": None}),
        ("deepseek_v3", {"topk_group": 4}),
        ("deepseek_v3", {"routed_scaling_factor": 2.4}),
        ("deepseek_v3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_every_setting_matters(family: str, change: dict, tmp_path: Path) -> None:
    """None: the other truth value."""
    shutil.copytree(STORED / family, tmp_path / family)
    file = tmp_path / family / "config.json"
    data = json.loads(file.read_text())
    data |= {key: (not data[key]) if value is None else value for key, value in change.items()}
    file.write_text(json.dumps(data))
    assert difference(tmp_path / family) > 10 * TOLERANCE
