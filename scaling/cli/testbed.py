"""`scaling testbed`: a cluster of network namespaces on this machine."""

import os
from dataclasses import dataclass

from scaling.meshes.errors import InputError
from scaling.testbed.build import Interrupted, down, missing, up
from scaling.testbed.job import run_job
from scaling.testbed.machine import Machine, present_machine
from scaling.testbed.plan import Bed, format_bandwidth, new_bed
from scaling.testbed.state import all_states, is_complete, read_state, state_folder

HOSTS, DEVICES, BANDWIDTH = 2, 2, "1Gbit"  # where none are given
SHELL_SIGNAL = 128  # added to the number of the signal that ended a command


@dataclass(frozen=True)
class BedArguments:
    """What the user typed after `scaling testbed ACTION`."""

    command: tuple[str, ...] = ()
    name: str = "default"
    hosts: int | None = None
    devices: int | None = None
    bandwidth: str | None = None
    latency: str | None = None


def testbed_command(action: str, given: BedArguments) -> int:
    """Do one action; returns the exit code."""
    _check(action, given)
    if action == "up":
        return _up(given)
    if action == "status":
        return _status()
    bed = read_state(given.name, state_folder())
    if action == "run":
        return _run(bed, given.command)
    for line in down(bed, present_machine(), state_folder()):
        print(f"removed {line}")
    print(f"testbed {bed.name} is gone")
    return 0


def _check(action: str, given: BedArguments) -> None:
    """Options and words of another action are a mistake, not to be passed over."""
    if action != "run" and given.command:
        raise InputError(f"scaling testbed {action} takes no command: {' '.join(given.command)}")
    if action == "run" and not given.command:
        raise InputError("scaling testbed run needs a command: scaling testbed run -- COMMAND")
    for option in ("hosts", "devices", "bandwidth", "latency"):
        if action != "up" and getattr(given, option) is not None:
            raise InputError(f"--{option} belongs to scaling testbed up, not to {action}")


def _up(given: BedArguments) -> int:
    bed = new_bed(
        given.name,
        HOSTS if given.hosts is None else given.hosts,
        DEVICES if given.devices is None else given.devices,
        given.bandwidth or BANDWIDTH,
        given.latency,
    )
    try:
        up(bed, present_machine(), state_folder())
    except Interrupted as stop:
        print(f"{stop}: what was made is removed again")
        return SHELL_SIGNAL + stop.number
    print(_words(bed))
    print("\n".join(f"  host{i} {a}  {n}" for i, (a, n) in enumerate(_hosts(bed))))
    option = "" if bed.name == "default" else f"--name {bed.name} "
    mesh = f"data={bed.hosts},fsdp={bed.devices}"
    print(f"next: scaling testbed run {option}-- scaling train tiny --mesh {mesh}")
    return 0


def _run(bed: Bed, command: tuple[str, ...]) -> int:
    machine = present_machine()
    if gone := missing(bed, machine):
        raise InputError(
            f"testbed {bed.name} lacks {', '.join(gone)} (was the machine restarted?); "
            "scaling testbed down, then up again"
        )
    if not is_complete(bed, state_folder()):
        raise InputError(
            f"testbed {bed.name} is not complete: its scaling testbed up is still at work or was "
            "killed; wait, or scaling testbed down, then up again"
        )
    return run_job(bed, machine, command, os.environ)


def _status() -> int:
    machine = Machine(lambda words: "")  # looks only
    beds = list(all_states(state_folder()))
    for bed in beds:
        print(f"{_words(bed)}: {_condition(bed, machine)}")
        print("\n".join(f"  host{i} {a}  {n}" for i, (a, n) in enumerate(_hosts(bed))))
    if not beds:
        print("no testbed; next: scaling testbed up --hosts 2 --devices 2 --bandwidth 1Gbit")
    return 0


def _condition(bed: Bed, machine: Machine) -> str:
    if gone := missing(bed, machine):
        return f"lacks {len(gone)} namespaces"
    return "up" if is_complete(bed, state_folder()) else "not complete"


def _hosts(bed: Bed) -> list[tuple[str, str]]:
    return list(zip(bed.addresses, bed.host_namespaces, strict=True))


def _words(bed: Bed) -> str:
    later = f", {bed.latency * 1e3:g} ms from host to host" if bed.latency else ""
    return (
        f"testbed {bed.name}: {bed.hosts} hosts x {bed.devices} devices, "
        f"{format_bandwidth(bed.bandwidth)} links{later}"
    )
