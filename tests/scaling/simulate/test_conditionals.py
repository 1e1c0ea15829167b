"""Nobody knows which branch of a conditional runs: a range over both, named by its line."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.profiles.io import profile_of
from scaling.program.ir import Branch, Kernel, Loop, Program
from scaling.program.serialization import program_dict, read_program_dict
from scaling.report.notebook import html
from scaling.report.prediction import page
from scaling.simulate.prediction import Conditional, Prediction, prediction_dict
from scaling.simulate.step import price
from scaling.simulate.summary import summarize

LONG, SHORT = Kernel("long", bytes=1e10), Kernel("short", bytes=1e7)
HOST = Kernel("host", kind="copy", bytes=1e7, host_bytes=1e7)
EITHER = Branch("either", branches=((SHORT,), (LONG,)), place="soap.py:12")


def predicted(*schedule) -> Prediction:
    cluster = catalog.load("dgx-h100")
    program = Program("step", "compiled", {"data": 8}, schedule)
    return summarize(price(program, cluster, profile_of(cluster.accelerator)))


def test_a_conditional_is_a_range_from_its_shortest_to_its_longest_branch():
    found, short, long = predicted(EITHER), predicted(SHORT), predicted(LONG)
    assert found.step_time == long.step_time
    assert (found.step_time_low, found.step_time_high) == (
        pytest.approx(short.step_time_low),
        pytest.approx(long.step_time_high),
    )
    assert found.grade == "calibrated" and not found.unknown


def test_a_branch_that_does_nothing_is_the_low_end():
    found = predicted(SHORT, Branch("skip", branches=((), (LONG,))))
    assert found.step_time_low == pytest.approx(predicted(SHORT).step_time_low)


def test_conditionals_are_named_by_line_the_largest_difference_first():
    small = Branch("small", branches=((), (SHORT,)), place="clip.py:3")
    found = predicted(small, Loop("l", body=(EITHER,), trips=4), EITHER, small)
    times = {kernel.name: predicted(kernel).step_time for kernel in (LONG, SHORT)}
    assert [(part.place, part.calls) for part in found.conditionals] == [
        ("soap.py:12", 5),
        ("clip.py:3", 2),
    ]
    first = found.conditionals[0]
    assert first.longest == pytest.approx(5 * times["long"])
    assert first.shortest == pytest.approx(5 * times["short"])
    document = json.loads(json.dumps(prediction_dict(found), allow_nan=False))
    assert [part.pop("branches") for part in document["conditionals"]] == [
        list(part.branches) for part in found.conditionals
    ]
    assert [Conditional(**part | {"shares": ()}) for part in document["conditionals"]] == [
        replace(part, branches=()) for part in found.conditionals
    ]


def test_the_page_says_which_branch_is_assumed():
    line = "assumed: the conditional at soap.py:12 takes its longest branch"
    assert line in page(predicted(EITHER), "here") and line in html(predicted(EITHER), "here")
    alike = Branch("alike", branches=((LONG,), (LONG,)), place="soap.py:12")
    assert "assumed" not in page(predicted(alike), "here")


def test_conditionals_inside_of_branches_are_found():
    outer = Branch("outer", branches=((EITHER, LONG), ()), place="outer.py:1")
    found = {part.place: part for part in predicted(outer).conditionals}
    long, short = (predicted(kernel).step_time for kernel in (LONG, SHORT))
    assert found["outer.py:1"].longest == pytest.approx(2 * long)
    assert found["outer.py:1"].shortest == 0
    assert found["soap.py:12"].shortest == pytest.approx(short)


@settings(max_examples=20)
@given(
    shares=st.lists(st.integers(0, 9), min_size=2, max_size=2).filter(any), trips=st.integers(1, 5)
)
def test_given_shares_make_the_mean_of_the_branches_with_a_range_of_its_own(shares, trips):
    first, second = (n / sum(shares) for n in shares)
    either = replace(EITHER, shares=(first, second))
    found = predicted(Loop("l", body=(either, HOST), trips=trips))
    ends = predicted(SHORT, *[HOST] * 1), predicted(LONG, HOST)
    for name in ("step_time", "step_time_low", "step_time_high"):
        short, long = (getattr(end, name) for end in ends)
        assert getattr(found, name) == pytest.approx(trips * (first * short + second * long))
    assert found.conditionals[0].shares == (first, second)


def test_calls_and_what_is_not_known_go_by_the_shares():
    unknown = Kernel("mine", bytes=1e8, unknown="mine")
    either = Branch(
        "either", branches=((SHORT,), (unknown,)), place="soap.py:12", shares=(1.0, 0.0)
    )
    assert predicted(replace(either, shares=())).unknown and not predicted(either).unknown
    program = Program("step", "compiled", {"data": 1}, (replace(EITHER, shares=(0.75, 0.25)),))
    assert [calls for _, calls in program.operations] == [0.75, 0.25]
    assert read_program_dict(json.loads(json.dumps(program_dict(program)))) == program


def test_the_page_says_what_was_given_and_how_to_give_it():
    told = page(predicted(replace(EITHER, shares=(0.9, 0.1))), "here")
    assert "given: the conditional at soap.py:12 takes its branches in 90.0%, 10.0% of" in told
    assert "assumed" not in told
    assert "give --branches soap.py:12=0.1," in page(predicted(EITHER), "here")


def test_the_grade_is_of_the_weakest_figure_on_either_way():
    assert predicted(Branch("b", branches=((HOST,), (LONG,)))).grade == "datasheet"
    assert predicted(Branch("b", branches=((SHORT,), (LONG,)))).grade == "calibrated"
