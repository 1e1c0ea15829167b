"""Environment variables of GPUs, set before jax starts."""

import os

import pytest

from scaling.cli.main import main
from scaling.meshes.errors import InputError
from scaling.meshes.memory_pool import MEMORY_FRACTION
from scaling.training import starting
from scaling.training.launch import gpu
from scaling.training.launch.gpu import avoid_absent_gpus, reserve_gpu_memory


@pytest.mark.parametrize(
    ("platforms", "plugin", "library", "expected"),
    [
        ("", True, False, "cpu"),
        ("", True, True, None),
        ("", False, False, None),
        ("cuda", True, False, "cuda"),
    ],
)
def test_gpus_are_looked_for_only_where_there_may_be_some(
    monkeypatch, platforms, plugin, library, expected
):
    def load(name):
        if not library:
            raise OSError(name)

    monkeypatch.delenv("JAX_PLATFORMS")
    if platforms:
        monkeypatch.setenv("JAX_PLATFORMS", platforms)
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: plugin or None)
    monkeypatch.setattr(gpu.ctypes, "CDLL", load)
    avoid_absent_gpus()
    assert os.environ.get("JAX_PLATFORMS") == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"XLA_CLIENT_MEM_FRACTION": "0.92"}),
        ({"XLA_CLIENT_MEM_FRACTION": "0.5"}, {"XLA_CLIENT_MEM_FRACTION": "0.5"}),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".8"}, {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".8"}),
    ],
)
def test_reserve_gpu_memory_keeps_what_the_user_set(before, after):
    assert MEMORY_FRACTION == 0.92
    environment = dict(before)
    reserve_gpu_memory(environment)
    assert environment == after


def test_train_reserves_gpu_memory_before_jax_makes_devices(tmp_path, monkeypatch):
    found = []

    def start():
        found.append(os.environ["XLA_CLIENT_MEM_FRACTION"])
        raise InputError("devices come next")

    for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    monkeypatch.setattr(starting, "start_distributed", start)
    assert main(["train", "tiny", "--run-dir", str(tmp_path / "run")]) == 2
    assert found == ["0.92"]
