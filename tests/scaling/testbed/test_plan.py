"""A testbed as data: names, addresses, figures as people write them."""

import dataclasses

import pytest

from scaling.meshes.errors import InputError
from scaling.testbed.plan import (
    format_bandwidth,
    hosts_file,
    new_testbed,
)


@pytest.mark.parametrize(
    ("text", "bandwidth", "shown"),
    [
        ("1Gbit", 125e6, "1 Gbit/s"),
        ("1.5 Gbit/s", 187.5e6, "1.5 Gbit/s"),
        ("1gbit", 125e6, "1 Gbit/s"),  # as tc writes it
        ("25MB/s", 25e6, "200 Mbit/s"),
    ],
)
def test_a_rate_is_in_bits_or_bytes_and_printed_in_bits(text, bandwidth, shown):
    assert new_testbed("lab", 1, 1, text).bandwidth == bandwidth
    assert format_bandwidth(bandwidth) == shown


@pytest.mark.parametrize("text", ["", "-1Gbit", "1Gb", "1GB", "1bit", "1000001bit"])
def test_what_is_no_rate_is_refused_with_an_example(text):
    with pytest.raises(InputError, match="--bandwidth"):
        new_testbed("lab", 1, 1, text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "Lab"}, "small letters"),
        ({"name": "-n"}, "--name"),
        ({"name": "x" * 32}, "1 to 31"),
        ({"id": "0123"}, "id"),
        ({"hosts": 65}, "--hosts=65"),
        ({"devices": 0}, "--devices=0"),
        ({"bandwidth": 100}, "--bandwidth"),
        ({"latency": -1.0}, "--latency"),
    ],
)
def test_figures_out_of_range_are_refused(testbed, change, said):
    with pytest.raises(InputError, match=said):
        dataclasses.replace(testbed, **change)


def test_every_new_testbed_has_names_of_its_own():
    made = [new_testbed("lab", 2, 2, "1Gbit", "1.5ms") for _ in range(20)]
    names = {name for testbed in made for name in testbed.namespaces}
    assert len(names) == 20 * 3 and made[0].latency == 1.5e-3


def test_the_machine_s_name_is_each_host_s_own_address(testbed):
    for index, address in enumerate(testbed.addresses):
        lines = hosts_file(testbed, index, "box").splitlines()
        assert [line for line in lines if "box" in line] == [f"{address} host{index} box"]
        assert {f"host{i}" for i in range(testbed.hosts)} <= set(" ".join(lines).split())
