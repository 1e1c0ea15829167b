"""`scaling sharding`, the prediction and the compiled program agree on an optimiser's bytes."""

from dataclasses import replace

import pytest

from scaling.api.sharding import sharding
from scaling.meshes import catalog
from scaling.meshes.shape import parse_mesh
from scaling.run import Precision, Run
from scaling.run.optimizers import DEFAULTS
from scaling.run.recipes import recipe
from scaling.simulate.memory import memory_use
from scaling.training.program import program_of_run
from tests.optimizer_numbers import optimizer_numbers

MESH = "fsdp=2,tensor=2"
COUNTERS = 64  # bytes, at most: whole numbers of steps, one for each parameter of Adafactor


def run_of(name: str, state: str) -> Run:
    precision = Precision("fp32", optimizer_state=state)
    return replace(recipe("tiny"), optimizer=name, precision=precision)


def shown(run: Run, mesh: str) -> dict:
    """What `scaling sharding --json` says of the state."""
    return sharding(run, mesh).to_dict()["optimizer_state"]


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize("state", ["fp32", "bf16"])
def test_the_bytes_shown_are_the_programs_arguments(name: str, state: str):
    run = run_of(name, state)
    program, _ = program_of_run(run, parse_mesh(MESH), catalog.load("host"))
    kept = [b for b in program.buffers if b.category == "optimizer_state" and b.persistent]
    found = shown(run, MESH)["device_bytes"]
    assert sum(buffer.bytes for buffer in kept) == found
    assert memory_use(program).by_category["optimizer_state"] == found


@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize(("state", "size"), [("fp32", 4), ("bf16", 2)])
def test_the_whole_state_is_the_count_times_the_format(name, state, size):
    run = run_of(name, state)
    whole = shown(run, "fsdp=4")["bytes"]
    assert 0 <= whole - size * optimizer_numbers(run.model, name) <= COUNTERS


def test_the_table_ends_with_the_state_in_words():
    assert "\noptimizer state (lion, bf16): " in str(sharding(run_of("lion", "bf16"), "fsdp=8"))
