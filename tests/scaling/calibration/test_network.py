"""`scaling calibrate --network`: what it times, by one process and by several."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from scaling.calibration import cases, network
from scaling.calibration.cases import collective_operations
from scaling.calibration.network import timed_calls
from scaling.calibration.sizes import HOST_QUICK
from scaling.collectives.cost import with_timed_calls
from scaling.meshes import catalog
from scaling.meshes.bandwidths import measured_calls
from scaling.profiles.io import profile_of

KINDS = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute"}


def test_every_collective_is_timed_among_the_devices_present(monkeypatch):
    monkeypatch.setattr(network, "sizes_for", lambda *_: replace(HOST_QUICK, messages=(4096,)))
    monkeypatch.setattr(network, "ITERATIONS", 1)
    two = lambda ranks: dict(list(collective_operations(ranks).items())[:2])
    monkeypatch.setattr(cases, "collective_operations", two)
    told = []
    calls = timed_calls(True, told.append)
    assert told == ["timing collectives among 8 ranks on 1 of 1 nodes"]
    assert [call.collective for call in calls] == ["all-reduce", "all-gather"]
    assert {(call.ranks, call.nodes, call.bytes) for call in calls} == {(8, 1, 4096)}
    gpus = catalog.load("dgx-h100")
    assert with_timed_calls(profile_of(gpus.accelerator), gpus, calls).network


def test_nodes_are_found_by_the_processes():
    devices, per_node = network.by_nodes()
    assert per_node == len(devices) == len(jax.devices())


@pytest.mark.slow
def test_processes_time_what_lies_between_them(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    root = Path(__file__).resolve().parents[3]
    out = tmp_path / "bandwidth.json"
    job = {"JAX_PLATFORMS": "cpu", "JAX_COORDINATOR_ADDRESS": f"localhost:{port}"}
    job |= {"JAX_NUM_PROCESSES": "2", "PYTHONPATH": str(root), "XLA_FLAGS": ""}
    words = "-m scaling calibrate --network --quick --devices 2 --out".split()
    processes = [
        subprocess.Popen(
            [sys.executable, *words, str(out)], env={**os.environ, **job, "JAX_PROCESS_ID": str(i)}
        )
        for i in range(2)
    ]
    assert [process.wait(600) for process in processes] == [0, 0]
    calls = measured_calls(out)
    assert {(call.ranks, call.nodes) for call in calls} == {(2, 1), (4, 2)}
    assert {call.collective for call in calls} == KINDS
    assert json.loads(out.read_text())["machine"]
