"""Formulas as text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.formula import evaluate, substituted, symbols
from scaling.questions.answer import Answer, Input, by_formula, textbook
from scaling.questions.page import show

positive = st.floats(1e-6, 1e18)


@given(positive, st.integers(1, 10**6), positive)
def test_a_formula_is_computed_as_python_computes_it(V, N, W):
    found = evaluate("V * (N - 1) / (N * W)", {"V": V, "N": N, "W": W})
    assert found == V * (N - 1) / (N * W)


def test_functions_powers_and_signs():
    found = evaluate("max(-a, sqrt(b) ** 2) + ceil(0.1) - floor(1.9) + min(a, b)", {"a": 1, "b": 9})
    assert found == pytest.approx(9 + 1 - 1 + 1)


@pytest.mark.parametrize(
    "text", ["__import__('os')", "a.b", "x + 1", "[1]", "'a'", "max(1, key=2)", "1 if 1 else 2"]
)
def test_nothing_but_arithmetic_is_computed(text):
    with pytest.raises(ValueError, match="no arithmetic"):
        evaluate(text, {"a": 1})


def test_symbols_are_replaced_and_functions_are_kept():
    assert symbols("max(V, W_hbm) / V") == ["V", "W_hbm"]
    assert substituted("max(V, W_hbm) * W", {"V": "1", "W_hbm": "2"}) == "max(1, 2) * W"


def test_an_answer_gives_the_fitted_number_with_the_textbook_beside_it():
    inputs = (Input("V", 8.0, "bytes"), Input("W", 2.0, "bytes/s"))
    answer = by_formula("time", "s", "V / W", inputs, fitted=5.0, section="gpus: quiz 1")
    assert (float(answer), answer.ideal, answer.fitted) == (5.0, 4.0, 5.0)
    assert str(answer).splitlines()[0] == "time: 5 s (textbook 4 s)"
    assert str(textbook(answer)).splitlines()[0] == "time: 4 s (fitted 5 s)"


def test_a_formula_with_other_symbols_than_its_inputs_is_a_mistake_of_ours():
    with pytest.raises(AssertionError):
        by_formula("time", "s", "V / W", (Input("V", 1.0),))


def test_a_part_is_found_by_its_name():
    answer = Answer("all", 1, parts=(Answer("one", 2),))
    assert float(answer["one"]) == 2
    with pytest.raises(KeyError, match="one"):
        answer["two"]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.04e-3, "s", "1.04 ms"),
        (40 * 86_400, "s", "40 days"),
        (2475.0, "tokens/device", "2,475 tokens/device"),
        (2472.6, "tokens/device", "2473 tokens/device"),
        (17_376_512, "tokens", "17,376,512 tokens"),
        (989.4e12, "FLOP/s", "989 TFLOP/s"),
        (2**30, "bytes", "1 GiB"),
        (0.5, "", "0.5"),
        (math.pi * 1e20, "", "3.142e20"),
        (None, "s", "none"),
        ("ring", "", "ring"),
    ],
)
def test_values_with_units(value, unit, text):
    assert show(value, unit) == text
