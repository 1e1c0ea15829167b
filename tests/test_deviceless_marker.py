"""A test without the marker `deviceless` cannot reach the compiler of GPUs that are not here.

Whether the extra of that name is installed makes no difference: what needs it fails everywhere.
"""

import subprocess
import sys

import pytest

from scaling.meshes import catalog
from scaling.meshes.devices import absent_mesh
from scaling.meshes.shape import MeshShape
from tests.conftest import UNMARKED

CODE = """
from scaling.meshes import catalog
from scaling.meshes.devices import absent_devices
absent_devices(8, catalog.load("dgx-h100"))
"""


def test_an_unmarked_test_that_compiles_for_absent_gpus_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match=f"test_deviceless_marker.py.*{UNMARKED}"):
        absent_mesh(MeshShape(fsdp=8), catalog.load("dgx-h100"))


def test_so_does_a_process_that_it_starts() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 1 and "marker `deviceless`" in done.stderr


@pytest.mark.deviceless
def test_with_the_marker_both_compile() -> None:
    assert absent_mesh(MeshShape(fsdp=8), catalog.load("dgx-h100")).size == 8
    assert subprocess.run([sys.executable, "-c", CODE]).returncode == 0
