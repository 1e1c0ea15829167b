"""ZeRO stages 1 and 3 store the same; `scaling sharding` says what stage 1 holds during a step.

That both train alike and move what the table says: test_step_on_meshes, test_gpu_step_program.
"""

import json
from dataclasses import replace

import chex
import jax
import pytest

from scaling.analytic.table import expected_bytes
from scaling.api.sharding import sharding
from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import parse_mesh
from scaling.run import Precision, Run
from tests.harness import Case, abstract_arguments, priced

LAYER = 2 * 64 * 128 + 2 * 64 * 64 + 3 * 64 * 128  # elements of matrices of the llama toy, by hand
TABLES = 2 * 128 * 64
HELD = ("matrices", "gradients")


@pytest.mark.parametrize("mesh", ["fsdp=2,tensor=2", "fsdp=2,stage=2"])
def test_stages_store_the_same_state(mesh: str) -> None:
    with jax.set_mesh(host_mesh(parse_mesh(mesh))):
        first, third = (abstract_arguments(Case(mesh, zero=zero).run)[0] for zero in (1, 3))
    chex.assert_trees_all_equal_shapes_and_dtypes(*map(jax.tree.leaves, (first, third)))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(third), strict=True):
        assert a.sharding == b.sharding


@pytest.mark.slow
def test_stage_3_needs_less_memory_at_the_peak() -> None:
    first, third = (
        priced(Case("fsdp=2,tensor=2", microbatches=2, zero=zero)).memory for zero in (1, 3)
    )
    for owner in ("parameters", "optimizer_state"):
        assert first.by_category[owner] == third.by_category[owner]
    assert first.peak > third.peak
    # The sums of the microbatches' gradients are float32, as the parameters are.
    assert third.by_category["gradients"] >= third.by_category["parameters"]


def in_bf16(case: Case) -> Run:
    return replace(case.run, precision=Precision("bf16"))


def printed(case: Case, as_json: bool = True) -> str:
    """What `scaling sharding` prints."""
    found = sharding(in_bf16(case), case.mesh)
    return json.dumps(found.to_dict()) if as_json else str(found)


@pytest.mark.parametrize(
    ("case", "elements", "gradient_bytes"),
    [
        (Case("fsdp=2,tensor=2", zero=1), (4 * LAYER + TABLES) // 2, 2),
        (Case("fsdp=2,tensor=2", microbatches=4, zero=1), (4 * LAYER + TABLES) // 2, 4),
        (Case("fsdp=2,stage=2", zero=1), 2 * LAYER + TABLES, 4),  # layers of one stage
    ],
    ids=str,
)
def test_sharding_json_has_the_bytes_held_in_a_step(
    case: Case, elements: int, gradient_bytes: int
) -> None:
    held = json.loads(printed(case))["held"]
    assert held == {
        "zero_stage": 1,
        "matrices": 2 * elements,
        "gradients": gradient_bytes * elements,
    }


@pytest.mark.parametrize("model", ["mixtral", "latent"])
def test_bytes_held_are_those_gathered_and_scattered(model: str, tmp_path, capsys) -> None:
    case = Case("fsdp=2,tensor=2", model, zero=1)  # a router is held in float32
    held = json.loads(printed(case))["held"]
    table = expected_bytes(in_bf16(case), case.run.mesh, 0)
    wanted = [table["fsdp", kind] for kind in ("all-gather", "reduce-scatter")]
    assert [held[key] for key in HELD] == wanted


def test_sharding_text_names_zero_stage_1_over_fsdp_only(tmp_path, capsys) -> None:
    text = lambda case: printed(case, as_json=False)
    bytes_held = f"{2 * (4 * LAYER + TABLES):,}"
    first = text(Case("fsdp=2", zero=1))
    assert (
        f"\nzero_stage 1: during a step also {bytes_held} bytes/device of gathered matrices"
        in first
    )
    assert f"{bytes_held} of their gradients" in first
    assert "zero_stage" not in text(Case("fsdp=2"))
    assert "zero_stage" not in text(Case("data=2", zero=1))
