"""Which kernels a run takes on which platform."""

import pytest

from scaling.meshes.rules import make_rules
from scaling.meshes.shape import MeshShape
from scaling.recipes import recipe
from scaling.train.execution import execution_for


@pytest.mark.parametrize(
    ("platform", "kernel"),
    [
        ("gpu", "triton"),
        ("cuda", "triton"),
        ("gpu without cuDNN", "tiles"),  # AMD's, and NVIDIA's before Ampere
        ("cpu", "tiles"),
        ("tpu", "ragged"),
    ],
)
def test_products_of_experts_have_a_kernel_by_platform(platform: str, kernel: str) -> None:
    rules = make_rules(MeshShape(), sequence_parallel=False)
    assert execution_for(recipe("tiny-moe"), rules, platform).grouped_kernel == kernel
