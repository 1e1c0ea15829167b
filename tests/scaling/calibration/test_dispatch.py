"""What is measured of calls: counted from the compiled text, and true to it."""

import jax
import pytest

from scaling.calibration import steps as calls
from scaling.calibration.steps import KEPT, dispatch_benches
from scaling.meshes.devices import present_mesh
from scaling.meshes.shape import MeshShape

pytestmark = pytest.mark.slow  # each bench compiles


@pytest.fixture(scope="module")
def benches():
    return list(dispatch_benches(present_mesh(MeshShape(data=8)), quick=True))


def test_buffers_go_in_and_come_out(benches):
    found = [b.sample.buffers for b in benches if not b.sample.fresh]
    assert found == [2 * n for n in calls.BUFFERS_QUICK]


def test_temporaries_are_fresh_above_what_is_kept(benches):
    fresh = [b.sample.fresh for b in benches if b.sample.fresh]
    assert len(fresh) == len(calls.SIZES_QUICK)
    for found, asked in zip(fresh, calls.SIZES_QUICK, strict=True):
        assert max(KEPT, 0.9 * asked) < found < 2 * asked


def test_touched_is_at_least_once_written_and_read(benches):
    for bench in benches:
        assert bench.sample.touched >= 2 * bench.sample.fresh
        assert bench.sample.touched > 0


def test_a_bench_runs_and_can_run_again(benches):
    for bench in benches[:1]:
        first, second = bench.call(), bench.call()
        assert jax.tree.map(lambda a, b: bool((a == b).all()), first, second) == [True]
