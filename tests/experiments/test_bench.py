"""The benchmarks compare neighbours in time; here only how, not how fast this machine is."""

import json

import pytest

from experiments import bench


def timer(*seconds: float):
    """Pretends to take these times, one after the other."""
    left = iter(seconds)
    return lambda: next(left)


def test_the_first_round_does_not_count():
    result = bench.compare("x", "a / b", timer(99.0, 2.0, 4.0), timer(1.0, 1.0, 1.0), rounds=2)
    assert result.ratios == (2.0, 4.0)
    assert (result.seconds, result.baseline, result.ratio) == (3.0, 1.0, 3.0)


def test_the_table_has_a_row_per_result_with_its_spread():
    result = bench.Ratio("remat full", "a / b", 0.3, 0.2, (1.4, 1.5, 1.6))
    row = bench.table([result]).splitlines()[1]
    for cell in ("remat full", "1.500", "1.400-1.600", "300.0", "200.0", "a / b"):
        assert cell in row


def test_results_are_saved_raw_with_versions(tmp_path):
    bench.save([bench.Ratio("x", "a / b", 0.3, 0.2, (1.5,))], tmp_path / "new" / "bench.json")
    document = json.loads((tmp_path / "new" / "bench.json").read_text())
    assert document["schema"] == 1 and "jax" in document["versions"]
    assert document["results"][0] == {
        **{"name": "x", "what": "a / b", "seconds": 0.3, "baseline": 0.2},
        **{"ratios": [1.5], "ratio": 1.5},
    }


def test_one_benchmark_can_be_asked_for(tmp_path, capsys, monkeypatch):
    asked = []
    monkeypatch.setitem(bench.BENCHMARKS, "start", lambda rounds: asked.append(rounds) or [])
    bench.main(["--only", "start", "--rounds", "3", "--out", str(tmp_path / "bench.json")])
    assert asked == [3] and json.loads((tmp_path / "bench.json").read_text())["results"] == []
    assert "ratio" in capsys.readouterr().out


def test_the_loop_is_timed_by_what_lies_between_its_steps(monkeypatch):
    """Two runs: within each the first steps, and the pause before it, do not count."""
    monkeypatch.setattr(bench, "LOOP_STEPS", 4)
    monkeypatch.setattr(bench, "WARM_UP", 2)
    watched = bench.WatchedStep(lambda: None)
    now = 0.0
    for step in range(8):
        now += 9.0 if step % 4 < 2 else 0.5  # around the step
        watched.times.append((now, now + 2.0))
        now += 2.0
    assert watched.pairs() == [(2.5, 2.0)] * 4
    assert watched.ratios() == (1.25,) * 4 and watched.medians() == (2.5, 2.0)


@pytest.mark.slow
def test_every_benchmark_runs(tmp_path):
    bench.main(["--rounds", "1", "--out", str(tmp_path / "bench.json")])
    results = json.loads((tmp_path / "bench.json").read_text())["results"]
    assert {row["name"].split()[0] for row in results} == set(bench.BENCHMARKS)
    assert all(row["ratio"] > 0 for row in results)
