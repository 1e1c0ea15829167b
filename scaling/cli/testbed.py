"""`scaling testbed`: a cluster of network namespaces on this machine."""

import os
from typing import Any, Literal

from scaling.meshes.errors import InputError, check_keys
from scaling.testbed.build import Interrupted, down, missing, up
from scaling.testbed.job import SHELL_SIGNAL, run_job
from scaling.testbed.machine import Machine, present_machine
from scaling.testbed.plan import TestbedConfig, format_bandwidth, new_testbed
from scaling.testbed.state import Record, all_states, read_state, state_folder

ACTIONS = ("up", "run", "down", "status")
UP: dict[str, Any] = {
    "hosts": 2,
    "devices": 2,
    "bandwidth": "1Gbit",
    "latency": None,
}  # where none are given


def testbed(
    action: Literal["up", "run", "down", "status"],
    command: tuple[str, ...] = (),
    *,
    name: str = "default",
    hosts: int | None = None,
    devices: int | None = None,
    bandwidth: str | None = None,
    latency: str | None = None,
) -> int:
    """Make a real cluster inside this Linux machine, run a command on all its hosts, remove it.

    Args:
        action: what to do: up makes it, run starts a command in every host, down removes it, status
            lists.
        command: for run, after --: what to start, once in every host.
        name: name of the testbed; there may be several.
        hosts: for up: number of hosts (default: 2).
        devices: for up: fake CPU devices of each host (default: 2).
        bandwidth: for up: rate of each host's link, in each direction (default: 1Gbit).
        latency: for up: added from host to host, such as 1ms; needs the kernel's netem.
    """
    check_keys([action], ACTIONS, "scaling testbed", "action")
    if action != "run" and command:
        raise InputError(f"scaling testbed {action} takes no command: {' '.join(command)}")
    if action == "run" and not command:
        raise InputError("scaling testbed run needs a command: scaling testbed run -- COMMAND")
    options = {"hosts": hosts, "devices": devices, "bandwidth": bandwidth, "latency": latency}
    given = {option: value for option, value in options.items() if value is not None}
    for option in given if action != "up" else ():
        raise InputError(f"--{option} belongs to scaling testbed up, not to {action}")
    if action == "up":
        return _up(new_testbed(name, **(UP | given)))
    if action == "status":
        return _status()
    record, machine = read_state(name, state_folder()), present_machine()
    if action == "run":
        return _run(record, machine, command)
    for line in down(record.testbed, machine, state_folder()):
        print(f"removed {line}")
    print(f"testbed {name} is gone")
    return 0


def _up(testbed: TestbedConfig) -> int:
    try:
        up(testbed, present_machine(), state_folder())
    except Interrupted as stop:
        print(f"{stop}: what was made is removed again")
        return SHELL_SIGNAL + stop.number
    print(_described(testbed))
    option = "" if testbed.name == "default" else f"--name {testbed.name} "
    mesh = f"data={testbed.hosts},fsdp={testbed.devices}"
    print(f"next: scaling testbed run {option}-- scaling train tiny --mesh {mesh}")
    return 0


def _run(record: Record, machine: Machine, command: tuple[str, ...]) -> int:
    testbed = record.testbed
    if gone := missing(testbed, machine):
        raise InputError(
            f"testbed {testbed.name} lacks {', '.join(gone)} (was the machine restarted?); "
            "scaling testbed down, then up again"
        )
    if not record.complete:
        raise InputError(
            f"testbed {testbed.name} is not complete: its scaling testbed up is still at work or "
            "was killed; wait, or scaling testbed down, then up again"
        )
    return run_job(testbed, machine, command, os.environ)


def _status() -> int:
    machine = Machine(lambda words: "")  # looks only
    records = list(all_states(state_folder()))
    for record in records:
        gone = len(missing(record.testbed, machine))
        condition = "up" if record.complete else "not complete"
        condition = f"lacks {gone} namespaces" if gone else condition
        print(_described(record.testbed, f": {condition}"))
    if not records:
        print(
            f"no testbed; next: scaling testbed up --hosts {UP['hosts']} --devices {UP['devices']}"
        )
    return 0


def _described(testbed: TestbedConfig, condition: str = "") -> str:
    later = f", {testbed.latency * 1e3:g} ms from host to host" if testbed.latency else ""
    size = f"{testbed.hosts} hosts x {testbed.devices} devices"
    links = f"{format_bandwidth(testbed.bandwidth)} links{later}{condition}"
    hosts = enumerate(zip(testbed.addresses, testbed.host_namespaces, strict=True))
    lines = (f"  host{i} {address}  {name}" for i, (address, name) in hosts)
    return "\n".join([f"testbed {testbed.name}: {size}, {links}", *lines])
