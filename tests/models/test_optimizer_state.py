"""Counts of optimiser state equal the arrays that the optimisers make, and what papers say."""

import math

import jax
import pytest

from scaling.meshes.devices import abstract_mesh
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.parameters import count_parameters
from scaling.models.execution import Execution
from scaling.models.presets import preset
from scaling.run import Batch, Precision, Run
from scaling.run.optimizers import DEFAULTS
from scaling.run.parallelism.rules import rules_for
from scaling.training.step import abstract_state
from tests.optimizer_numbers import optimizer_numbers

DENSE = ["tiny", "gpt2-124m", "llama3-8b", "qwen3-0.6b"]
MODELS = [*DENSE, "mixtral-8x7b", "deepseek-v3"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize("state", ["fp32", "bf16"])
def test_the_count_is_that_of_the_arrays(model: str, name: str, state: str) -> None:
    config, mesh = preset(model), MeshShape()
    precision = Precision(optimizer_state=state)
    run = Run("toy", config, Batch(1, 16), precision=precision, optimizer=name)
    with jax.sharding.use_abstract_mesh(abstract_mesh(mesh)):
        execution = Execution(rules_for(run, mesh), compute="fp32")
        tree = abstract_state(run, execution).optimizer
    arrays = [leaf for leaf in jax.tree.leaves(tree) if leaf.ndim]
    assert {leaf.dtype.name for leaf in arrays} == {"float32" if state == "fp32" else "bfloat16"}
    assert sum(math.prod(leaf.shape) for leaf in arrays) == optimizer_numbers(config, name)


@pytest.mark.parametrize("model", MODELS)
def test_adafactor_keeps_next_to_nothing_and_muon_less_than_adamw(model: str) -> None:
    config = preset(model)
    total = count_parameters(config).total
    kept = {name: optimizer_numbers(config, name) for name in DEFAULTS}
    assert kept["adafactor"] < kept["lion"] < kept["muon"] < kept["adamw"] == 2 * total
    if total > 1e8:
        assert kept["adafactor"] < 0.01 * total
