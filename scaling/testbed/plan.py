"""A testbed as plain data: its hosts, their addresses, and how fast their links are.

    host0                            switch                            host1
    eth0 10.77.0.1 ------------ port0  bridge  port1 ------------ eth0 10.77.0.2
          both ends of every link let `bandwidth` bytes/s pass, each in its direction

Hosts and switch are network namespaces, the bridge included: no link and no address of a testbed
is among the machine's own. All names carry the testbed's random id.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from scaling.meshes.errors import InputError, check_range, reworded
from scaling.meshes.units import Unit, format_rate, parse_number, parse_quantity

PREFIX = "scaling"  # of every namespace that is ours
NETWORK = "10.77.0"  # private (RFC 1918); seen inside the testbed only
MOST_HOSTS = 64  # assumed by this project: a process each, on one machine
MOST_DEVICES = 64  # of one host; assumed by this project
BITS = 8  # of a byte
LEAST_RATE, MOST_RATE = 10**6, 10**11  # bit/s; assumed by this project
MOST_LATENCY = 10.0  # s; assumed by this project

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_ID = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True)
class TestbedConfig:
    """The cluster that `scaling testbed up` makes.

    Raises:
        InputError: a figure is out of range, or a name cannot be part of a file name.
    """

    __test__ = False  # its name begins like that of a test class, which pytest would collect
    name: str
    id: str  # eight hexadecimal digits, drawn at random
    hosts: int
    devices: int  # of each host
    bandwidth: int  # bytes/s of a link, each direction
    latency: float = 0.0  # s that a packet takes from host to host on top of its own; 0 adds none

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"--name {self.name!r} must be 1 to 31 small letters, digits or dashes, such as lab"
            )
        if not _ID.fullmatch(self.id):
            raise InputError(f"the testbed's id {self.id!r} is not eight hexadecimal digits")
        check_range("--hosts", self.hosts, 1, MOST_HOSTS)
        check_range("--devices", self.devices, 1, MOST_DEVICES)
        check_range("--bandwidth in bit/s", BITS * self.bandwidth, LEAST_RATE, MOST_RATE)
        check_range("--latency in s", self.latency, 0.0, MOST_LATENCY)

    @property
    def switch(self) -> str:
        """The namespace with the bridge."""
        return f"{PREFIX}-{self.name}-{self.id}-switch"

    @property
    def host_namespaces(self) -> tuple[str, ...]:
        """One for each host, in order."""
        return tuple(f"{PREFIX}-{self.name}-{self.id}-host{i}" for i in range(self.hosts))

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (self.switch, *self.host_namespaces)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"{NETWORK}.{i + 1}" for i in range(self.hosts))


def new_testbed(
    name: str, hosts: int, devices: int, bandwidth: str, latency: str | None = None
) -> TestbedConfig:
    """A testbed with a random id, from texts such as `1Gbit` and `2ms`.

    Raises:
        InputError: a text is no rate or time, a rate no whole number of bytes per second.
    """
    seconds = 0.0 if latency is None else _parsed("--latency", parse_number, latency, "s")
    rate = _parsed("--bandwidth", parse_quantity, bandwidth, "B/s")
    if rate != int(rate):
        raise InputError(f"--bandwidth {bandwidth!r} is not a whole number of bytes/s")
    return TestbedConfig(name, secrets.token_hex(4), hosts, devices, int(rate), seconds)


def _parsed(option: str, parse: Callable[[str, Unit], float], text: str, unit: Unit) -> float:
    with reworded(f"{option} "):
        return parse(text, unit)


def format_bandwidth(bandwidth: float) -> str:
    """`1 Gbit/s` from bytes per second."""
    return format_rate(BITS * bandwidth, "bit/s")


def hosts_file(testbed: TestbedConfig, index: int, machine_name: str) -> str:
    """/etc/hosts as the host `index` sees it.

    gloo listens at the address that the machine's name stands for, so in every host that name
    stands for the host's own address.
    """
    lines = [f"# scaling testbed {testbed.name} {testbed.id}", "127.0.0.1 localhost"]
    for number, address in enumerate(testbed.addresses):
        own = f" {machine_name}" if number == index else ""
        lines.append(f"{address} host{number}{own}")
    return "\n".join(lines) + "\n"
