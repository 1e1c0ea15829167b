"""Which kernels a run takes on which device."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from scaling.meshes.errors import InputError
from scaling.meshes.rules import make_rules
from scaling.meshes.shape import MeshShape
from scaling.run import Precision, Run
from scaling.run.recipes import recipe
from scaling.training import execution
from scaling.training.execution import compute_capability, execution_for, execution_on

RULES = make_rules(MeshShape(), sequence_parallel=False)


@pytest.mark.parametrize(
    ("platform", "capability", "kernel"),
    [
        ("gpu", 8.0, "triton"),
        ("cuda", 9.0, "triton"),
        ("gpu", 0.0, "tiles"),  # AMD's
        ("gpu", 7.5, "tiles"),  # NVIDIA's before Ampere
        ("cpu", 0.0, "tiles"),
        ("tpu", 0.0, "ragged"),
    ],
)
def test_products_of_experts_have_a_kernel_by_device(platform, capability, kernel) -> None:
    found = execution_for(recipe("tiny-moe"), RULES, platform, capability)
    assert found.grouped_kernel == kernel


@pytest.mark.parametrize(
    ("name", "change", "capability", "kernel"),
    [
        ("llama3-8b", {}, 8.0, "cudnn"),
        ("llama3-8b", {}, 7.5, "xla"),
        ("llama3-8b", {"attention": "unfused"}, 9.0, "xla"),
        ("llama3-8b", {"precision": Precision("fp32")}, 9.0, "xla"),
        ("llama3-8b", {"precision": Precision("fp8")}, 9.0, "cudnn"),
        ("deepseek-v3", {}, 8.0, "xla"),
        ("deepseek-v3", {}, 9.0, "cudnn"),
        ("deepseek-v3", {}, 10.0, "cudnn"),
    ],
)
def test_attention_is_cudnns_where_it_has_the_heads(name, change, capability, kernel) -> None:
    found = execution_for(replace(recipe(name), **change), RULES, "cuda", capability)
    assert found.attention_kernel == kernel


def packed(seq_len: int, **change) -> Run:
    run = recipe("llama3-1b")
    train = replace(run.train, documents="packed")
    return replace(run, batch=replace(run.batch, seq_len=seq_len), train=train, **change)


def test_packed_documents_of_an_odd_length_are_refused_where_the_kernel_is() -> None:
    execution_for(packed(2047), RULES, "cpu")
    execution_for(packed(2047, attention="unfused"), RULES, "cuda", 9.0)
    execution_for(packed(2048), RULES, "cuda", 9.0)
    with pytest.raises(InputError, match=r"seq_len=2047.*use a multiple of 2, or --set attention"):
        execution_for(packed(2047), RULES, "cuda", 9.0)


def device(version: str, **more) -> SimpleNamespace:
    return SimpleNamespace(platform="gpu", client=SimpleNamespace(platform_version=version), **more)


def test_a_compute_capability_is_nvidias() -> None:
    assert compute_capability(device("cuda 12090", compute_capability="9.0")) == 9.0
    assert compute_capability(device("rocm 60000", compute_capability="gfx942")) == 0.0


def test_an_installed_cudnn_that_lacks_the_kernel_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(execution, "cudnn_version", lambda: 90800)
    hopper = device("cuda 12090", compute_capability="9.0")
    assert execution_on(hopper, recipe("llama3-8b"), RULES).attention_kernel == "cudnn"
    with pytest.raises(InputError, match=r"cuDNN 9\.8\.0 has no attention"):
        execution_on(hopper, recipe("deepseek-v3"), RULES)
    unfused = replace(recipe("deepseek-v3"), attention="unfused")
    assert execution_on(hopper, unfused, RULES).attention_kernel == "xla"
