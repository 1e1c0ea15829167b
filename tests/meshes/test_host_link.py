"""What a chip copies to its host's memory at, while all others of the host do: by hand."""

from dataclasses import replace

import pytest

from scaling.meshes import catalog
from scaling.meshes.host_link import COPY_SHARE, host_bandwidth

PCIE5, PCIE4, PCIE3 = 63e9, 31.5e9, 15.75e9  # bytes/s of 16 lanes


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("dgx-h100", PCIE5),  # a switch of its own
        ("dgx-a100", PCIE4 / 2),  # two chips under each of four switches
        ("rtx3090-10", PCIE3 * 2 / 5),  # five cards climb over one PCIe 4.0 port
        ("l40s-8", PCIE4),
    ],
)
def test_chips_share_the_wires_on_their_way(name: str, rate: float) -> None:
    assert host_bandwidth(catalog.load(name)) == pytest.approx(COPY_SHARE * rate)


def test_fewer_chips_share_less() -> None:
    one = replace(catalog.load("dgx-a100"), devices_per_node=1)
    assert host_bandwidth(one) == pytest.approx(COPY_SHARE * PCIE4)


def test_there_is_no_way_where_memory_is_shared_or_nothing_is_said() -> None:
    assert host_bandwidth(catalog.load("host")) is None
    assert host_bandwidth(catalog.load("tpu-v5p")) is None
