"""What a wrong guess betrays."""

import math
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scaling.course.lessons.index import labs, lessons
from scaling.course.quizzes.common_mistakes import KNOWN, diagnose, mistake
from scaling.meshes.errors import InputError


@pytest.mark.parametrize("name", KNOWN)
@given(answer=st.floats(1e-9, 1e18), way=st.sampled_from([1, -1]))
def test_a_guess_off_by_a_mistake_is_told_that_mistake(name, answer, way):
    numbered = mistake(f"{name} 3").factor != mistake(f"{name} 5").factor
    text = name + " 5" * numbered
    verdict = diagnose(answer * mistake(text).factor ** way, answer, 0.01, [text])
    assert not verdict.right
    assert [found.name for found in verdict.mistakes] == [name]
    assert mistake(text).sentence in str(verdict)


@given(answer=st.floats(1e-9, 1e18), off=st.floats(-0.029, 0.029))
def test_a_guess_within_the_tolerance_is_right(answer, off):
    assert diagnose(answer * (1 + off), answer, 0.03, ["bits"]).right


@given(ratio=st.floats(1e-6, 1e6))
def test_other_factors_are_told_without_a_slip(ratio):
    assume(all(abs(ratio / f - 1) > 0.031 for f in (1, 2, 0.5, 8, 1 / 8, 1e3, 1e-3, 1e6, 1e-6)))
    verdict = diagnose(ratio, 1.0, 0.03, ["both directions", "bits"])
    assert not verdict.mistakes and "no mistake" in str(verdict)


def test_two_mistakes_of_one_factor_are_both_told():
    verdict = diagnose(2.0, 1.0, 0.03, ["sparse peak", "both directions"])
    assert {found.name for found in verdict.mistakes} == {"sparse peak", "both directions"}


def test_a_mistake_of_one_side_is_not_told_to_a_guess_on_the_other():
    possible = ["sparse peak: high", "both directions: low"]
    told = {factor: diagnose(factor, 1.0, 0.03, possible).mistakes for factor in (2.0, 0.5)}
    assert [one.name for one in told[2.0]] == ["sparse peak"]
    assert [one.name for one in told[0.5]] == ["both directions"]
    with pytest.raises(InputError, match="high or low"):
        mistake("sparse peak: up")


@pytest.mark.parametrize("guess", [math.nan, math.inf])
def test_a_guess_that_is_no_number_is_refused(guess):
    with pytest.raises(InputError, match="finite"):
        diagnose(guess, 1.0, 0.03, [])


@pytest.mark.parametrize("guess", [0.0, -1.0])
def test_zero_and_negative_guesses_are_off(guess):
    assert not diagnose(guess, 1.0, 0.03, ["bits"]).right


def test_seconds_for_milliseconds_are_told_without_a_quiz_that_lists_them():
    assert [found.name for found in diagnose(1.04e-3, 1.044, 0.01, []).mistakes] == ["thousand"]
    assert [found.name for found in diagnose(1.04e6, 1.044, 0.01, []).mistakes] == ["million"]


def test_an_unknown_mistake_is_named_with_the_nearest():
    with pytest.raises(InputError, match="bits"):
        mistake("bit")


@pytest.mark.parametrize("lesson", (*lessons(), *labs()), ids=lambda one: one.file.stem)
def test_a_mistake_whose_number_a_lesson_computes_is_told_to_that_number_alone(lesson):
    text = lesson.file.read_text(encoding="utf-8")
    computed = re.findall(r'f"([a-z ]+ \{[^}"]*:\.\d+g\})(: high|: low)?"', text)
    assert [words for words, side in computed if not side and words.split(" {")[0] in KNOWN] == []


def test_large_factors_are_written_out():
    assert "by a factor of 1,000;" in str(diagnose(1000.0, 1.0, 0.03, ())).replace("\n", ";")
