"""`scaling testbed`: a cluster of network namespaces on this machine."""

import os
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from scaling.cli.options import Command, Number, Text
from scaling.meshes.errors import InputError
from scaling.testbed.build import Interrupted, down, missing, up
from scaling.testbed.job import SHELL_SIGNAL, run_job
from scaling.testbed.machine import Machine, present_machine
from scaling.testbed.plan import TestbedConfig, format_bandwidth, new_testbed
from scaling.testbed.state import Record, all_states, read_state, state_folder

HOSTS, DEVICES, BANDWIDTH = 2, 2, "1Gbit"  # where none are given


@dataclass(frozen=True)
class TestbedCommand(Command):
    """Make a real cluster inside this Linux machine, run a command on all its hosts, remove it.

    Hosts are network namespaces, joined by links of a known rate; needs root, iproute2 and
    util-linux.

    Example: scaling testbed up --hosts 2 --devices 2 --bandwidth 1Gbit
    then: scaling testbed run -- scaling train tiny --mesh data=2,fsdp=2
    and at last: scaling testbed down
    """

    action: Annotated[Positional[Literal["up", "run", "down", "status"]], arg(metavar="ACTION")]
    """up makes it, run starts a command in every host, down removes it, status lists."""
    command: Annotated[
        Positional[tuple[str, ...]], arg(metavar="COMMAND", help_behavior_hint="")
    ] = ()
    """For run, after --: what to start, once in every host."""
    name: Annotated[str, arg(metavar="TEXT")] = "default"
    """Name of the testbed; there may be several."""
    hosts: Number = None
    """For up: number of hosts (default: 2)."""
    devices: Number = None
    """For up: fake CPU devices of each host (default: 2)."""
    bandwidth: Text = None
    """For up: rate of each host's link, in each direction (default: 1Gbit)."""
    latency: Text = None
    """For up: added from host to host, such as 1ms; needs the kernel's netem."""

    @property
    def subject(self) -> str:
        """The testbed."""
        return self.name

    def execute(self) -> int:
        """Do one action."""
        self._check()
        if self.action == "up":
            return self._up()
        if self.action == "status":
            return _status()
        record, machine = read_state(self.name, state_folder()), present_machine()
        if self.action == "run":
            return _run(record, machine, self.command)
        for line in down(record.testbed, machine, state_folder()):
            print(f"removed {line}")
        print(f"testbed {self.name} is gone")
        return 0

    def _check(self) -> None:
        """Refuse options and words of another action."""
        action = self.action
        if action != "run" and self.command:
            words = " ".join(self.command)
            raise InputError(f"scaling testbed {action} takes no command: {words}")
        if action == "run" and not self.command:
            raise InputError("scaling testbed run needs a command: scaling testbed run -- COMMAND")
        for option in ("hosts", "devices", "bandwidth", "latency"):
            if action != "up" and getattr(self, option) is not None:
                raise InputError(f"--{option} belongs to scaling testbed up, not to {action}")

    def _up(self) -> int:
        hosts = HOSTS if self.hosts is None else self.hosts
        devices = DEVICES if self.devices is None else self.devices
        rate = self.bandwidth or BANDWIDTH
        testbed = new_testbed(self.name, hosts, devices, rate, self.latency)
        try:
            up(testbed, present_machine(), state_folder())
        except Interrupted as stop:
            print(f"{stop}: what was made is removed again")
            return SHELL_SIGNAL + stop.number
        print(f"{_description(testbed)}\n{_hosts(testbed)}")
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
        print(f"{_description(record.testbed)}: {condition}\n{_hosts(record.testbed)}")
    if not records:
        print(f"no testbed; next: scaling testbed up --hosts {HOSTS} --devices {DEVICES}")
    return 0


def _hosts(testbed: TestbedConfig) -> str:
    pairs = zip(testbed.addresses, testbed.host_namespaces, strict=True)
    return "\n".join(f"  host{i} {address}  {name}" for i, (address, name) in enumerate(pairs))


def _description(testbed: TestbedConfig) -> str:
    later = f", {testbed.latency * 1e3:g} ms from host to host" if testbed.latency else ""
    return (
        f"testbed {testbed.name}: {testbed.hosts} hosts x {testbed.devices} devices, "
        f"{format_bandwidth(testbed.bandwidth)} links{later}"
    )
