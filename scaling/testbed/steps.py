"""The steps that make a testbed, in order; removing its namespaces and files undoes them all.

    for each host    its hosts file, its namespace
    switch           a bridge
    for each host    a link to the switch, an address, the rate at both ends

The rate is a token bucket (tc-tbf(8)): `burst` bytes may pass at once, then `rate` holds; a packet
that would wait longer than `latency` is dropped, as in the buffer of a switch.
"""

from dataclasses import dataclass

from scaling.testbed.plan import BITS, NETWORK, TestbedConfig, hosts_file

BURST = 256 * 1024  # bytes; assumed by this project: several times the largest packet (64 KiB)
QUEUE = "50ms"  # assumed by this project; longer than any round trip here
PACKETS = 100_000  # in flight under --latency, where tc-netem(8) drops after 1,000 by default


@dataclass(frozen=True)
class HostsFile:
    """Write `text` to /etc/netns/NAMESPACE/hosts."""

    namespace: str
    text: str


# A file, or the words of a command of `ip` or `tc`.
Step = HostsFile | tuple[str, ...]


def steps(testbed: TestbedConfig, machine_name: str) -> list[Step]:
    """All steps. `machine_name`: what `hostname` prints."""
    made: list[Step] = []
    for index, name in enumerate(testbed.host_namespaces):
        made += [HostsFile(name, hosts_file(testbed, index, machine_name)), _namespace(name)]
    made += [_namespace(testbed.switch)]
    made += _commands(testbed.switch, "link add bridge0 type bridge", "link set bridge0 up")
    for index in range(testbed.hosts):
        made += _link(testbed, index)
    return made


def _link(testbed: TestbedConfig, index: int) -> list[Step]:
    """Joins a host to the switch."""
    switch, host, port = testbed.switch, testbed.host_namespaces[index], f"port{index}"
    return [
        *_commands(switch, f"link add {port} type veth peer name eth0 netns {host}"),
        *_commands(switch, f"link set {port} master bridge0", f"link set {port} up"),
        *_commands(
            host,
            "link set lo up",
            f"addr add {NETWORK}.{index + 1}/24 dev eth0",
            "link set eth0 up",
        ),
        *_limits(testbed, switch, port, latency=0.0),
        *_limits(testbed, host, "eth0", testbed.latency),
    ]


def _limits(testbed: TestbedConfig, namespace: str, device: str, latency: float) -> list[Step]:
    """The rate at which `device` sends, and before it the delay of a packet, if there is one."""
    add = ("tc", "-n", namespace, "qdisc", "add", "dev", device)
    rate = f"tbf rate {BITS * testbed.bandwidth}bit burst {BURST} latency {QUEUE}".split()
    if not latency:
        return [(*add, "root", *rate)]
    delay = f"root handle 1: netem delay {round(latency * 1e6)}us limit {PACKETS}".split()
    return [(*add, *delay), (*add, "parent", "1:1", "handle", "10:", *rate)]


def _namespace(name: str) -> Step:
    return ("ip", "netns", "add", name)


def _commands(namespace: str, *lines: str) -> list[Step]:
    return [("ip", "-n", namespace, *line.split()) for line in lines]
