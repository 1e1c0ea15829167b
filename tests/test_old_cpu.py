"""`make test-old-cpu` computes other last digits: what passes there passes on other machines."""

import os
import subprocess
import sys

import pytest

from tools.old_cpu import settings

CODE = """
import math, random
import numpy as np
x = np.random.default_rng(0).uniform(0, 10, (100, 1000))
print(hash(tuple(np.log(x).flat)), hash(tuple((x @ x.T).flat)), hash(tuple(map(math.exp, x.flat))))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not settings().get("NPY_DISABLE_CPU_FEATURES"), reason="no x86-64, or an old one already"
)
def test_logarithms_products_and_powers_differ_in_their_last_digits() -> None:
    printed = lambda more: subprocess.run(
        [sys.executable, "-c", CODE], env=os.environ | more, capture_output=True, text=True
    ).stdout.split()
    here, there = printed({}), printed(settings())
    assert len(here) == 3 and all(a != b for a, b in zip(here, there, strict=True))
