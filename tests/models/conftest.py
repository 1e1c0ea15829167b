import jax
import pytest

from scaling.meshes.devices import host_mesh
from tests.models.one_device import ONE


@pytest.fixture
def one_device():
    """The test runs on a mesh of one device."""
    with jax.set_mesh(host_mesh(ONE)):
        yield
