"""A testbed as data: names, addresses, figures as people write them."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.testbed.plan import (
    TestbedConfig,
    format_bandwidth,
    hosts_file,
    new_testbed,
)

testbeds = st.builds(
    TestbedConfig,
    name=st.from_regex(r"[a-z0-9][a-z0-9-]{0,30}", fullmatch=True),
    id=st.from_regex(r"[0-9a-f]{8}", fullmatch=True),
    hosts=st.integers(1, 64),
    devices=st.integers(1, 64),
    bandwidth=st.integers(125_000, 12_500_000_000),
    latency=st.floats(0, 10),
)


@pytest.mark.parametrize(
    ("text", "bandwidth"),
    [
        ("1Gbit", 125e6),
        ("200Mbit", 25e6),
        ("1.5 Gbit/s", 187.5e6),
        ("1gbit", 125e6),  # as tc writes it
        ("1Gb/s", 125e6),
        ("125MB/s", 125e6),
    ],
)
def test_a_rate_is_in_bits_or_bytes(text, bandwidth):
    assert new_testbed("lab", 1, 1, text).bandwidth == bandwidth


@pytest.mark.parametrize("text", ["", "-1Gbit", "1Gb", "1GB", "1bit"])
def test_what_is_no_rate_is_refused_with_an_example(text):
    with pytest.raises(InputError, match="--bandwidth"):
        new_testbed("lab", 1, 1, text)


@given(st.sampled_from([125e3, 25e6, 125e6, 187.5e6, 1.25e9, 12.5e9]))
def test_a_printed_rate_is_read_back(bandwidth):
    assert new_testbed("lab", 1, 1, format_bandwidth(bandwidth)).bandwidth == bandwidth


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": ""}, "--name ''"),
        ({"name": "../etc"}, "--name"),
        ({"name": "Lab"}, "small letters"),
        ({"name": "-n"}, "--name"),
        ({"name": "x" * 32}, "1 to 31"),
        ({"id": "0123"}, "id"),
        ({"hosts": 0}, "--hosts=0"),
        ({"hosts": 65}, "--hosts=65"),
        ({"devices": 0}, "--devices=0"),
        ({"bandwidth": 100}, "--bandwidth"),
        ({"latency": -1.0}, "--latency"),
    ],
)
def test_figures_out_of_range_are_refused(testbed, change, said):
    with pytest.raises(InputError, match=said):
        dataclasses.replace(testbed, **change)


@given(testbeds, testbeds)
def test_two_testbeds_share_no_name_unless_they_share_the_id(a, b):
    assert len(set(a.namespaces)) == a.hosts + 1
    if a.id != b.id:
        assert not set(a.namespaces) & set(b.namespaces)


def test_every_new_testbed_has_an_id_of_its_own():
    made = [new_testbed("lab", 2, 2, "1Gbit", "1.5ms") for _ in range(20)]
    assert len({testbed.id for testbed in made}) == 20 and made[0].latency == 1.5e-3


def test_the_machine_s_name_is_each_host_s_own_address(testbed):
    for index, address in enumerate(testbed.addresses):
        lines = hosts_file(testbed, index, "box").splitlines()
        assert [line for line in lines if "box" in line] == [f"{address} host{index} box"]
        assert {f"host{i}" for i in range(testbed.hosts)} <= set(" ".join(lines).split())
