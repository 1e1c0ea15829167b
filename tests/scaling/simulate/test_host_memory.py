"""What all devices of a host keep in its memory stands beside what it has."""

from dataclasses import replace

import pytest

from scaling.meshes import catalog
from scaling.profiles.io import profile_of
from scaling.program.ir import Buffer, Program
from scaling.report.prediction import page
from scaling.simulate.step import price
from scaling.simulate.summary import summarize


def predicted(cluster, kept: float, devices: int = 8):
    buffers = (Buffer("moments", kept, "pinned_host", True),)
    program = Program("offloaded", "compiled", {"data": devices}, (), buffers)
    return summarize(price(program, cluster, profile_of(cluster.accelerator)))


@pytest.fixture(scope="module")
def cluster():
    return catalog.load("dgx-h100", 2)


def test_the_devices_of_one_host_share_its_memory(cluster):
    assert cluster.host_memory.value == 2e12
    for devices, sharing in ((16, 8), (8, 8), (2, 2)):
        memory = predicted(cluster, 1e11, devices).memory
        assert (memory.host_needed, memory.host_capacity) == (sharing * 1e11, 2e12)
    assert "(on the host: 100 GB of each device, 800 GB, of 2 TB)" in page(
        predicted(cluster, 1e11), "here"
    )


def test_more_than_the_host_has_is_a_warning(cluster):
    enough, not_enough = predicted(cluster, 2.4e11), predicted(cluster, 2.6e11)
    assert not any("host" in text for text in enough.warnings)
    assert "does not fit on the host: 2.08 TB needed, 2 TB there" in not_enough.warnings
    more = catalog.load("dgx-h100", 2, {"host_memory": 4e12})
    assert not any("host" in text for text in predicted(more, 2.6e11).warnings)


def test_a_host_whose_memory_nobody_states_is_said_to_be_not_known(cluster):
    unknown = replace(cluster, host_memory=None)
    found = predicted(unknown, 1e13)
    assert found.memory.host_capacity is None and not any("host" in t for t in found.warnings)
    assert "how much it has is not known: --override host_memory=2TB" in page(found, "here")
    assert "on the host" not in page(predicted(cluster, 0.0), "here")
