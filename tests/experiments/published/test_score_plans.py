"""Scores of planners on published sweeps."""

import gzip
import json

import numpy as np
import pytest

from experiments.published import score_plans
from experiments.published.plan_models import Guess, calculon, left_out
from experiments.published.score_plans import CHANCE, PLAN, solved, summary, tables, write
from experiments.published.sweeps import problems


@pytest.fixture(scope="module")
def small():
    """Two problems with runs that ran out of memory, one of each network."""
    playbook = [p for p in problems() if p.source == "Ultra-Scale Playbook"]
    found = [next(p for p in playbook if p.fabric == fabric) for fabric in ("good", "slow")]
    assert all(any(row.status == "oom" for row in problem.rows) for problem in found)
    return found


def knows(problem, factor=1.0):
    """Guesses of a planner that knows what was measured, raised to a power."""
    return [
        Guess((row.step_time or 1e-3) ** factor, fits=row.status == "ok") for row in problem.rows
    ]


def test_who_knows_what_was_measured_has_no_regret(small):
    for problem in small:
        one = solved(problem, {PLAN: knows(problem)})
        how = one.answers[PLAN]
        assert (how.runs, how.regret, how.hit) == (1, 0, 1) and how.tau == pytest.approx(1)
        assert one.answers[CHANCE].regret > 0.1 and one.answers[CHANCE].runs < 1
        rule = one.answers["fewest tensor x stage, of what predicted to fit"]
        assert rule == one.answers["fewest tensor x stage, of what ran"]


def test_a_first_choice_that_ran_out_of_memory_counts_and_the_next_is_taken(small):
    for problem in small:
        guesses = [Guess(guess.time, fits=True) for guess in knows(problem)]
        how = solved(problem, {PLAN: guesses}).answers[PLAN]
        assert how.runs == 0 and how.regret == 0  # what ran out is said to be the fastest


def test_the_reverse_order_has_the_worst_regret(small):
    for problem in small:
        one = solved(problem, {PLAN: knows(problem, -1.0)})
        worst = max(row.step_time for row in problem.ran) / problem.best - 1
        how = one.answers[PLAN]
        assert how.tau == pytest.approx(-1) and how.regret == pytest.approx(worst)


def test_problems_are_comparable():
    every = problems()
    assert len({(p.name, p.fabric) for p in every}) == len(every) == 89
    for problem in every:
        assert len(problem.ran) >= 4 and {row.gpus for row in problem.rows} == {
            problem.rows[0].gpus
        }
        assert {row.fabric for row in problem.ran} == {problem.fabric}


def test_memory_is_scored_by_what_counts_as_evidence():
    never = score_plans.memory_summary(lambda rows: [Guess(1.0, fits=True) for _ in rows])
    every = next(row for row in never if row["model"] == "all")
    assert (every["n"], every["ran out"], every["recall"], every["precision"]) == (
        1153,
        244,
        0,
        None,
    )
    refused = score_plans.memory_summary(lambda rows: [Guess(np.inf, fits=True) for _ in rows])
    assert not refused


def test_tables_and_files_hold_every_problem(small, tmp_path):
    every = [solved(problem, {PLAN: knows(problem)}) for problem in small]
    memory = score_plans.memory_summary(
        lambda rows: [Guess(1.0, row.status == "ok") for row in rows]
    )
    text = "\n".join(tables(every, memory))
    assert "sick network" in text and text.count("100.0%") > 4
    write(tmp_path, every, memory)
    assert json.loads((tmp_path / "scores.json").read_text())["summary"] == summary(every)
    kept = (tmp_path / "configurations.csv.gz").read_bytes()
    rows = gzip.decompress(kept).decode().splitlines()
    assert len(rows) == 1 + sum(len(problem.rows) for problem in small)


def test_other_models_say_something_of_nearly_every_configuration(small):
    for problem in small:
        rows = score_plans.on_its_network(problem).rows
        said = calculon(rows)
        assert 0.5 < sum(np.isfinite(guess.time) for guess in said) / len(rows) <= 1
        assert any(not guess.fits for guess in said)
    (guess,) = left_out(small[0].rows[:1])
    assert 0.1 < guess.time / small[0].rows[0].step_time < 10
