"""What labs compute with: the inversion of two measurements, a run on a cable, the lab4_errata."""

import json
from pathlib import Path

import pytest

from scaling.api.kernel import kernel
from scaling.course.lessons import lab2_model, lab3_testbed, lab4_errata
from scaling.meshes.errors import InputError


def test_two_lines_cross_where_both_leave_the_same_rest():
    """One machine takes 2 ms a token, the other 1, and 100 ms that are outside both."""
    lengths = tuple(range(10, 200, 10))
    measured = (100 + 2 * 55, 100 + 1 * 55)
    rests = [
        [seconds - slope * at for at in lengths]
        for seconds, slope in zip(measured, (2, 1), strict=True)
    ]
    tokens, rest = lab2_model.crossing(*rests, lengths)
    assert tokens == pytest.approx(55, rel=0.01) and rest == pytest.approx(100, rel=0.01)


@pytest.mark.parametrize("gap", [1.0, -1.0])
def test_lines_that_do_not_cross_give_nothing(gap):
    assert lab2_model.crossing((2.0 + gap, 1.0 + gap), (2.0, 1.0), (512, 1024)) is None


def test_every_exhibit_says_what_happened_in_units_and_words():
    assert all(one.claim and one.where and one.question.reason for one in lab4_errata.exhibits())
    titles = [one.title for one in lab4_errata.exhibits()]
    assert len(set(titles)) == len(titles)
    assert all(len(one.question.mistakes) <= 1 for one in lab4_errata.exhibits())


def test_without_a_testbed_nothing_runs_and_the_reason_is_told(monkeypatch):
    def nobody():
        raise InputError("testbeds need root")

    monkeypatch.setattr(lab3_testbed, "present_machine", nobody)
    monkeypatch.setattr(lab3_testbed.subprocess, "run", None)
    with pytest.raises(InputError, match="need root"):
        lab3_testbed.train_here(4, "200Mbit", "stage=4")


def test_a_run_folder_gives_its_steps_behind_the_warm_up(tmp_path):
    one = lab3_testbed.recorded_steps(stages=True)[0]
    foretold = {"step_time": 1.0, "step_time_low": 0.5, "step_time_high": 2.0, "time": one.time}
    (tmp_path / "predicted.json").write_text(json.dumps(foretold))
    steps = [{"loss": 1.0, "step_time": 0.1 * i} for i in range(1, lab3_testbed.STEPS + 1)]
    lines = [json.dumps(step) for step in [{"event": "start"}, *steps]]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    found = lab3_testbed.recorded(4, "200Mbit", "stage=4", tmp_path)
    assert len(found.measured) == lab3_testbed.STEPS - lab3_testbed.WARM_UP
    assert found.measured[0] == pytest.approx(0.5) and found.predicted == 1.0


def test_the_commands_are_those_that_one_types():
    words = lab3_testbed.train_command("stage=4")
    assert words[:6] == ["testbed", "run", "--name", lab3_testbed.NAME, "--", "scaling"]
    assert "batch.microbatches=4" in words
    assert "--set" not in lab3_testbed.train_command("data=4")


def test_a_rule_of_thumb_beats_the_planner_where_lab_4_says_so():
    """Median regret of one node of A100, in the table of docs/decide.md: the plan's, the rule's."""
    page = (Path(__file__).parents[4] / "docs" / "decide.md").read_text(encoding="utf-8")
    cells = next(line for line in page.splitlines() if "| vTrain, one node |" in line).split("|")
    plan, rule = (float(cells[column].split("/")[0]) for column in (5, 7))
    assert "fewest tensor x stage" in page and rule < plan


def test_two_laboratories_products_of_a_b200_differ_and_both_lie_in_the_range():
    """The exhibit of lab 4; a range has to hold the nodes of both."""
    (one,) = [one for one in lab4_errata.exhibits() if "large products of a B200" in one.title]
    found = kernel("matmul", (16_384,) * 3, accelerator="b200-sxm")
    assert one.cause == lab4_errata.OTHER and one.ratio < 0.8
    assert found.low <= 2 * 16_384**3 / (one.printed * 1e12) <= found.high
