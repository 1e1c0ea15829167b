"""What calling a program costs besides its kernels."""

import numpy as np
import pytest

from scaling.profiles.profile import DispatchFit, Evidence
from scaling.program.ir import Buffer, Kernel, Program
from scaling.simulate.step import buffers_of, dispatch_time, temporaries

FIT = DispatchFit(1e-4, 1e-5, 1e9, 100.0, Evidence("a test", "2026-11", "measured"))
BUFFERS = (Buffer("w", 1000.0, "parameters", True), Buffer("t", 200.0, "temporary"))


def program(buffers=BUFFERS, peak=None):
    kernel = Kernel("k", reads=(0,), writes=(1,))
    return Program("p", "compiled", {"data": 1}, (kernel,), buffers, peak)


def test_a_call_costs_something_for_every_argument_and_for_fresh_memory():
    assert buffers_of(program()) == 1
    assert dispatch_time(program(), FIT) == pytest.approx(1e-4 + 1e-5 + 200 / 1e9)


def test_the_compilers_own_peak_counts_where_it_is_known():
    assert temporaries(program(peak=1500)) == 500
    assert temporaries(program(peak=900)) == 0


def test_temporaries_that_are_kept_from_call_to_call_cost_nothing():
    small = (BUFFERS[0], Buffer("t", 99.0, "temporary"))
    assert dispatch_time(program(small), FIT) == pytest.approx(1e-4 + 1e-5)


def test_configurations_are_priced_at_once():
    sizes = np.array([50.0, 200.0])
    both = dispatch_time(program((BUFFERS[0], Buffer("t", sizes, "temporary"))), FIT)
    assert both == pytest.approx([1.1e-4, 1.1e-4 + 2e-7])
