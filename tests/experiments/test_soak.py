"""The soak: its rule on samples that are made up, and a run of some seconds."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.soak_growth import FEWEST, JUDGED, RISE, Sample, growths, read, table, write
from scaling.meshes.errors import InputError

FIRST = Sample(0, 0.0, 0, 800_000_000, 10, 30, 2_000_000, 0, 0.005)
STEPS = 30_000  # of a generation
RESULTS = Path(__file__).parents[2] / "experiments" / "results" / "2026-11-23-soak"


def made(slope, noise=0.0, generations=4):
    """Samples of generations whose memory grows by `slope` bytes a step, after a steep start."""
    draw = np.random.default_rng(0)
    return [
        replace(
            FIRST,
            generation=g,
            step=g * STEPS + step,
            rss=int(FIRST.rss + slope * step + 1e5 * min(step, STEPS // 5) + noise * draw.normal()),
        )
        for g in range(generations)
        for step in range(0, STEPS + 1, STEPS // 30)
    ]


def flat(samples):
    return {growth.name: growth.is_flat for growth in growths(samples)}


def test_what_does_not_change_is_flat_whatever_its_start():
    assert flat(made(slope=0.0)) == dict.fromkeys(JUDGED, True)


@pytest.mark.parametrize("noise", [0.0, 1e7])
def test_a_leak_grows_and_is_measured(noise):
    leak = 2000.0  # bytes a step
    (rss, *others) = growths(made(leak, noise))
    assert not rss.is_flat and rss.slope == pytest.approx(leak, abs=3 * rss.error + 1e-3)
    assert all(other.is_flat for other in others)


def test_neither_noise_nor_a_small_certain_rise_is_a_leak():
    assert flat(made(slope=500.0, noise=4e8))["rss"]  # 2 % of the level, within the error
    certain = made(slope=0.5 * RISE * FIRST.rss / STEPS)
    assert growths(certain)[0].error < 1e-3 and flat(certain)["rss"]


def test_what_is_freed_is_flat():
    assert flat(made(slope=-2000.0))["rss"]


def test_too_few_samples_are_refused():
    with pytest.raises(InputError, match=f"1 of 1 generations have {FEWEST} samples"):
        growths(made(slope=0.0, generations=1))


def test_samples_are_read_as_they_were_written(tmp_path):
    samples = made(slope=1.0, noise=1e6)
    write(samples, tmp_path / "samples.csv")
    assert read(tmp_path / "samples.csv") == samples


def test_the_page_shows_the_saved_samples():
    assert table(read(RESULTS / "samples.csv")) in (RESULTS / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc of Linux")
def test_a_run_of_seconds_is_killed_resumed_and_judged(tmp_path):
    words = ("--minutes", "0.5", "--generations", "2", "--every", "1")
    command = [sys.executable, "-m", "experiments.soak", str(tmp_path), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    samples = read(tmp_path / "samples.csv")
    assert done.returncode in (0, 1) and table(samples) in done.stdout, done.stderr
    assert {s.generation for s in samples} == {0, 1}
    assert all(s.rss > 1e8 and s.files > 2 and s.threads > 2 and s.step for s in samples)
