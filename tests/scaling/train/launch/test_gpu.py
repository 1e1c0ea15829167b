"""Environment variables of GPUs, set before jax starts."""

import os
import subprocess
import sys

import pytest

from scaling.meshes.accelerator import MEMORY_FRACTION
from scaling.train.launch import gpu
from scaling.train.launch.gpu import avoid_absent_gpus, reserve_gpu_memory


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


def test_train_reserves_gpu_memory_before_jax_makes_devices(tmp_path):
    code = (
        "import os, sys\n"
        "from scaling.train.launch import distributed\n"
        "def start():\n"
        "    print(os.environ['XLA_CLIENT_MEM_FRACTION'])\n"
        "    raise SystemExit(0)\n"
        "distributed.start_distributed = start\n"
        "from scaling.cli.main import main\n"
        "main(['train', 'tiny', '--run-dir', sys.argv[1]])\n"
    )
    environment = {k: v for k, v in os.environ.items() if "MEM_FRACTION" not in k}
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["0.92"], done.stderr
