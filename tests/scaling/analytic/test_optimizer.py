"""What an optimiser has to move: numbers by hand."""

from dataclasses import replace

import pytest

from scaling.analytic.optimizer import optimizer_transfers
from scaling.analytic.step import step_sizes
from scaling.analytic.table import expected_bytes
from scaling.meshes.shape import MeshShape
from scaling.models.presets import preset
from scaling.run import Batch, Run

LLAMA = Run("toy", preset("llama3-8b"), Batch(64, 8192))
WEIGHTS = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336  # of one layer


def extra(optimizer: str, shape: MeshShape) -> dict:
    """What the table has more than with AdamW."""
    plain = expected_bytes(LLAMA, shape)
    table = expected_bytes(replace(LLAMA, optimizer=optimizer), shape)
    return {k: n - plain.get(k, 0) for k, n in table.items() if n != plain.get(k, 0)}


def test_lion_moves_no_more_than_adamw() -> None:
    assert extra("lion", MeshShape(fsdp=4, tensor=2)) == {}


def test_muon_sends_each_part_of_the_momentum_out_and_back_in_bf16() -> None:
    part = 2 * 32 * WEIGHTS / 8
    assert extra("muon", MeshShape(data=2, fsdp=4, tensor=2)) == {
        ("fsdp", "all-to-all"): pytest.approx(2 * part),
        ("tensor", "all-to-all"): pytest.approx(2 * part),
    }


def test_with_more_devices_than_layers_muon_sends_as_much_as_whole_matrices() -> None:
    assert extra("muon", MeshShape(fsdp=64)) == {
        ("fsdp", "all-to-all"): pytest.approx(2 * 2 * 64 * WEIGHTS / 64)
    }


def test_adafactor_sums_two_numbers_where_there_were_a_row_and_a_column() -> None:
    shape = MeshShape(fsdp=4, tensor=2)
    run = replace(LLAMA, optimizer="adafactor")
    sums = {"tensor": 0.0, "fsdp": 0.0}
    for call in optimizer_transfers(step_sizes(run, shape)):
        assert call.kind == "all-reduce"
        sums[call.axes] += call.bytes * call.calls
    assert sums["tensor"] == 4 * (7 * 32 + 2) * 4096 / 4
    across = 2 * 4096 + 2 * 1024 + 3 * 14336
    assert sums["fsdp"] == 4 * (32 * across + 2 * 128_256) / 2


@pytest.mark.parametrize("optimizer", ["adamw", "lion", "adafactor", "muon"])
def test_one_device_moves_nothing(optimizer: str) -> None:
    assert expected_bytes(replace(LLAMA, optimizer=optimizer), MeshShape(), smallest=0) == {}
