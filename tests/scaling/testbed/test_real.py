"""Real namespaces and links, where this machine lets us make some; else the reason is given."""

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from experiments.gloo.messages import KINDS, rounds
from scaling.meshes.errors import InputError
from scaling.testbed.build import down, missing, up
from scaling.testbed.job import run_job
from scaling.testbed.machine import processes, run
from scaling.testbed.plan import new_testbed

pytestmark = pytest.mark.slow  # they change the machine's network, and take its time
ROOT = Path(__file__).resolve().parents[3]
DEADLINE = 600  # seconds for processes to come up, compile and end on a busy machine
SIZE = 2**20  # bytes that host0 sends to host1
SEND = f"""
import os, socket, time
if os.environ["JAX_PROCESS_ID"] == "1":
    with socket.create_server(("host1", 5555)) as server:
        link, _ = server.accept()
        began, left = time.perf_counter(), {SIZE}
        link.sendall(b"x")
        while left:
            left -= len(link.recv(left))
        print(time.perf_counter() - began)
        link.close()
else:
    while True:
        try:
            link = socket.create_connection(("host1", 5555))
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    link.recv(1)
    link.sendall(bytes({SIZE}))
    link.close()
"""


def footprint():
    """Namespaces, links and files that a testbed could leave behind."""
    links = [link["ifname"] for link in json.loads(run(("ip", "-j", "link")))]
    files = [path for name in Path("/etc").glob("netns*") for path in (name, *name.rglob("*"))]
    return run(("ip", "netns", "list")), links, sorted(files)


def test_a_testbed_comes_and_goes_without_a_trace(machine, tmp_path):
    before = footprint()
    testbed = new_testbed("test", 3, 1, "200Mbit")
    up(testbed, machine, tmp_path)
    assert missing(testbed, machine) == []
    names, links, _ = footprint()
    assert all(name in names for name in testbed.namespaces)
    assert links == before[1]  # none of them among the machine's own
    limits = run(("tc", "-n", testbed.host_namespaces[2], "qdisc", "show", "dev", "eth0"))
    assert "tbf" in limits and "rate 200Mbit" in limits
    down(testbed, machine, tmp_path)
    assert footprint() == before


def test_a_link_lets_its_rate_pass_and_no_more(make, machine, capfd):
    """8 Mbit at 20 Mbit/s, but for the 256 KiB that the token bucket lets pass at once."""
    testbed = make(bandwidth="20Mbit")
    assert run_job(testbed, machine, [sys.executable, "-c", SEND]) == 0
    seconds = float(capfd.readouterr().out.removeprefix("host1: "))
    least = (SIZE - 256 * 1024) / testbed.bandwidth
    assert least <= seconds < 4 * least


def test_down_ends_a_process_that_is_still_there(make, machine, tmp_path):
    testbed = make()
    host = testbed.host_namespaces[1]
    child = subprocess.Popen(["ip", "netns", "exec", host, "sleep", "60"])
    while str(child.pid) not in run(("ip", "netns", "pids", host)).split():
        assert child.poll() is None
    removed = down(testbed, machine, tmp_path / "states")
    assert f"process {child.pid} in {host}" in removed
    assert child.wait(DEADLINE) == -15


def test_a_killed_job_leaves_no_process_in_its_hosts(make, machine):
    """Nor a child of a child with a session and an environment of its own."""
    testbed = make()
    code = f"""
        from scaling.testbed.job import run_job
        from scaling.testbed.machine import present_machine
        from scaling.testbed.plan import TestbedConfig
        words = ["sh", "-c", "env -i setsid sleep 60 & sleep 60"]
        run_job({testbed!r}, present_machine(), words)"""
    words = [sys.executable, "-c", textwrap.dedent(code)]
    job = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": str(ROOT)})
    for name in testbed.host_namespaces:
        wait_for(lambda name=name: len(processes(machine, name)) == 3)  # sh and two sleeps
    job.kill()
    job.wait()
    for name in testbed.host_namespaces:
        wait_for(lambda name=name: processes(machine, name) == [])


def test_a_job_ends_with_its_testbed(make, machine, tmp_path):
    testbed, codes = make(), []
    command = ["sh", "-c", "trap '' TERM; setsid sleep 60 & wait; sleep 60"]
    job = threading.Thread(target=lambda: codes.append(run_job(testbed, machine, command)))
    job.start()
    wait_for(lambda: len(processes(machine, testbed.host_namespaces[1])) == 2)
    down(testbed, machine, tmp_path / "states")
    job.join(DEADLINE)
    assert codes and codes[0] > 0


def wait_for(fact):
    deadline = time.monotonic() + DEADLINE
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_step_that_the_kernel_refuses_leaves_no_trace(machine, tmp_path, monkeypatch):
    """One of the commands becomes nonsense; what was made before it must go."""
    from scaling.testbed import steps

    before = footprint()
    monkeypatch.setattr(steps, "QUEUE", "no-time")
    with pytest.raises(InputError, match="nothing is left behind"):
        up(new_testbed("test", 2, 1, "1Gbit"), machine, tmp_path)
    assert footprint() == before and list(tmp_path.iterdir()) == []


def test_a_latency_is_there_or_the_kernel_s_lack_is_said(machine, tmp_path):
    testbed = new_testbed("test", 2, 1, "1Gbit", "1ms")
    try:
        up(testbed, machine, tmp_path)
    except InputError as error:
        assert "netem" in str(error) and not list(tmp_path.iterdir())
    else:
        shown = run(("tc", "-n", testbed.host_namespaces[0], "qdisc", "show", "dev", "eth0"))
        down(testbed, machine, tmp_path)
        assert "netem" in shown and "delay 1ms" in shown and "tbf" in shown


def test_two_hosts_train_over_their_link(make, machine, tmp_path, monkeypatch, capfd):
    testbed = make()
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    words = ["train", "tiny", "--mesh", "data=2,fsdp=2", "--steps", "4"]
    command = [sys.executable, "-m", "scaling", *words, "--run-dir", str(tmp_path / "run")]
    assert run_job(testbed, machine, command, os.environ) == 0, capfd.readouterr().err
    out = capfd.readouterr().out
    assert "host0: trained to step 4" in out and "host1: trained" not in out
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) >= 4


def expected_bytes(kind, hosts, devices, size):
    """Payload that leaves and enters each host."""
    leaves, enters = [0.0] * hosts, [0.0] * hosts
    for messages in rounds(kind, hosts * devices, size):
        for message in messages:
            source, target = message.source // devices, message.target // devices
            if source != target:
                leaves[source] += message.bytes
                enters[target] += message.bytes
    return list(zip(leaves, enters, strict=True))


@pytest.mark.parametrize(("hosts", "devices"), [(3, 1), (4, 1), (2, 2)])
def test_the_links_carry_the_bytes_that_gloo_is_said_to_send(
    make, machine, monkeypatch, capfd, hosts, devices
):
    """Counted by each host's own interface, every kind; headers and notifications are extra."""
    testbed, size = make(hosts=hosts, devices=devices), 12 * 2**20
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    words = [sys.executable, str(Path(__file__).with_name("count_bytes.py"))]
    assert run_job(testbed, machine, [*words, str(hosts), str(devices), str(size)]) == 0
    seen = 0
    for line in capfd.readouterr().out.splitlines():
        if "[" not in line or not line.partition(": ")[2].startswith('["'):
            continue
        kind, host, *moved = json.loads(line.partition(": ")[2])
        wanted = expected_bytes(kind, hosts, devices, size)[host]
        for bytes_moved, payload in zip(moved, wanted, strict=True):
            assert payload <= bytes_moved <= 1.05 * payload + 0.02 * size, (kind, host)
            seen += 1
    assert seen == 2 * len(KINDS) * hosts
