"""What processes of a job tell one another, where only the first of them runs."""

import jax
import numpy as np
import pytest

from scaling.compile.jax_internals import coordinated, tracing_for_absent_devices
from scaling.compile.pretend.arrays import answering_as_arrays
from scaling.compile.pretend.coordinator import Coordinator, answers
from scaling.meshes.errors import InputError

ROW = np.arange(3)
SHAPE = jax.ShapeDtypeStruct((4, 6), np.float32)


@pytest.fixture
def arrays():
    with tracing_for_absent_devices(), answering_as_arrays():
        yield


def test_a_gather_holds_the_value_of_this_process_once_per_process():
    gather = answers(2)["process_allgather"]
    assert gather({"a": ROW})["a"].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert gather(ROW, tiled=True).tolist() == [0, 1, 2, 0, 1, 2]
    assert gather(3.0, tiled=True).tolist() == [3.0, 3.0]
    assert gather(SHAPE, tiled=True) == SHAPE


def test_what_one_process_says_all_have():
    said = answers(2)
    assert said["broadcast_one_to_all"]([ROW, 1])[0].tolist() == ROW.tolist()
    assert said["sync_global_devices"]("start") is said["assert_equal"](ROW, "differs") is None
    assert said["reached_preemption_sync_point"](3) is False


def test_a_coordinator_keeps_what_this_process_writes():
    client = Coordinator()
    client.key_value_set("dir/a", "1", allow_overwrite=True)
    client.key_value_set("b", "2")
    assert client.key_value_dir_get("dir/") == [("dir/a", "1")]
    assert client.blocking_key_value_get("b", 1000) == client.key_value_try_get("b") == "2"
    client.key_value_delete("dir/")
    with pytest.raises(jax.errors.JaxRuntimeError, match="NOT_FOUND: dir/a: another process"):
        client.key_value_try_get("dir/a")
    client.wait_at_barrier("end", timeout_in_ms=1000)
    assert client.get_live_nodes([0, 1]) == {0: 0, 1: 0}


def test_jax_says_that_it_is_the_first_process_and_forgets_it():
    with coordinated(Coordinator(), 4):
        assert jax.distributed.is_initialized()
    assert not jax.distributed.is_initialized()


def test_shapes_do_what_arrays_do(arrays):
    assert (SHAPE + 1).shape == (np.ones(6, np.float32) * SHAPE).shape == (4, 6)
    assert (SHAPE @ SHAPE.T).shape == (4, 4)
    assert SHAPE.astype(np.int32).dtype == jax.numpy.asarray(SHAPE, np.int32).dtype == np.int32
    assert (SHAPE[0].shape, SHAPE.sum().shape, SHAPE.reshape(24).shape) == ((6,), (), (24,))
    assert [row.shape for row in SHAPE] == [(6,)] * 4
    assert jax.numpy.stack([SHAPE, SHAPE]).shape == (2, 4, 6)
    assert (SHAPE.nbytes, SHAPE.is_fully_replicated) == (96, True)
    assert SHAPE.addressable_shards[0].data is SHAPE is SHAPE.block_until_ready()


@pytest.mark.parametrize("read", [float, int, bool, np.asarray, lambda a: a.item(), jax.device_get])
def test_shapes_have_no_values(arrays, read):
    with pytest.raises(InputError, match=r"shape \(4, 6\) .* not here, .* lower the step"):
        read(SHAPE)


def test_afterwards_shapes_are_only_shapes():
    with answering_as_arrays():
        pass
    assert not hasattr(SHAPE, "astype") and not hasattr(SHAPE, "__array__")
