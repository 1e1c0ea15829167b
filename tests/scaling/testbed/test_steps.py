"""The commands that make a testbed, and their order."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scaling.testbed.build import HostsFile, steps
from scaling.testbed.plan import TestbedConfig

testbeds = st.builds(
    TestbedConfig,
    name=st.just("lab"),
    id=st.just("0123abcd"),
    hosts=st.integers(1, 12),
    devices=st.integers(1, 4),
    bandwidth=st.integers(125_000, 12_500_000_000),
    latency=st.sampled_from([0.0, 1e-3]),
)


def commands(testbed):
    return [
        " ".join(words)
        for words in steps(testbed, "box")
        if not isinstance(words, HostsFile) and words[1] == "-n"
    ]


def test_two_hosts_are_joined_by_a_bridge_and_limited_at_both_ends(testbed):
    switch, zero, one = testbed.namespaces
    tbf = "root tbf rate 1000000000bit burst 262144 latency 50ms"
    assert commands(testbed) == [
        f"ip -n {switch} link add bridge0 type bridge",
        f"ip -n {switch} link set bridge0 up",
        f"ip -n {switch} link add port0 type veth peer name eth0 netns {zero}",
        f"ip -n {switch} link set port0 master bridge0",
        f"ip -n {switch} link set port0 up",
        f"ip -n {zero} link set lo up",
        f"ip -n {zero} addr add 10.77.0.1/24 dev eth0",
        f"ip -n {zero} link set eth0 up",
        f"tc -n {switch} qdisc add dev port0 {tbf}",
        f"tc -n {zero} qdisc add dev eth0 {tbf}",
        f"ip -n {switch} link add port1 type veth peer name eth0 netns {one}",
        f"ip -n {switch} link set port1 master bridge0",
        f"ip -n {switch} link set port1 up",
        f"ip -n {one} link set lo up",
        f"ip -n {one} addr add 10.77.0.2/24 dev eth0",
        f"ip -n {one} link set eth0 up",
        f"tc -n {switch} qdisc add dev port1 {tbf}",
        f"tc -n {one} qdisc add dev eth0 {tbf}",
    ]


def test_a_latency_is_added_once_between_two_hosts(testbed):
    """Where a host sends, not where the switch does: a packet passes one of each."""
    delays = [line for line in commands(replace(testbed, latency=1.5e-3)) if "netem" in line]
    assert [line.split()[2] for line in delays] == list(testbed.host_namespaces)
    assert all("netem delay 1500us" in line for line in delays)
    limits = [line for line in commands(replace(testbed, latency=1.5e-3)) if "tbf" in line]
    assert len(limits) == len([line for line in commands(testbed) if "tbf" in line])


@given(testbeds)
def test_nothing_is_used_before_it_is_made(testbed):
    made, files = set(), set()
    for step in steps(testbed, "box"):
        if isinstance(step, HostsFile):
            files.add(step.namespace)
        elif step[:3] == ("ip", "netns", "add"):
            made.add(step[3])
        else:
            assert step[1] == "-n"  # it stays inside a namespace
            used = {word for word in step if word.startswith("scaling-")}
            assert used and used <= made
    assert made == set(testbed.namespaces) and files == set(testbed.host_namespaces)
