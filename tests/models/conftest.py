import pytest


@pytest.fixture
def one_device():
    """The test runs on a mesh of one device."""
    import jax  # not above: this file may be imported before the number of devices is set

    from scaling.meshes.devices import host_mesh
    from tests.models.one_device import ONE

    with jax.set_mesh(host_mesh(ONE)):
        yield
