"""Formulas as MathML: well formed, and with every symbol and number of the text."""

import ast
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.questions.mathml import mathml

SYMBOLS = st.sampled_from(["C", "W", "T_comm", "alpha", "B"])
NUMBERS = st.sampled_from(["2", "9.894e14", "0.5"])
FORMULAS = st.recursive(
    SYMBOLS | NUMBERS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(" ".join).map("({})".format),
        inner.map("sqrt({})".format),
        st.tuples(inner, inner).map(lambda pair: f"min({pair[0]}, {pair[1]})"),
        inner.map("({})**2".format),
    ),
    max_leaves=8,
)


def text(formula: str) -> str:
    return "".join(ET.fromstring(mathml(formula)).itertext())


@given(FORMULAS)
def test_every_formula_is_well_formed_and_has_all_its_symbols(formula):
    drawn = text(formula)
    for node in ast.walk(ast.parse(formula)):
        if isinstance(node, ast.Name) and node.id not in ("sqrt", "alpha"):
            assert node.id.replace("_", "") in drawn


@pytest.mark.parametrize(
    ("formula", "drawn"),
    [
        ("C / W * (X - 1)/X", "CW\N{DOT OPERATOR}X−1X"),
        ("a * (b + c) / d", "a\N{INVISIBLE TIMES}(b+c)d"),
        ("a / b / c", "ab\N{INVISIBLE TIMES}c"),
        ("B >= 2*C", "B≥2\N{INVISIBLE TIMES}C"),
        ("T = a", "T=a"),
        ("S ≈ 2 < T", "S≈2<T"),
        ("9.894e14 / 8", "9.894×10148"),
        ("2 * 4", "2×4"),
        ("T * devices / 3600", "T×devices3600"),
        ("sqrt(B * N / F)", "√(B\N{INVISIBLE TIMES}NF)"),
        ("alpha", "α"),
        ("a - (b - c)", "a−(b−c)"),
    ],
)
def test_how_formulas_are_drawn(formula, drawn):
    assert text(formula) == drawn


@pytest.mark.parametrize("wrong", ["f'x'", "[1]", "a if b else c"])
def test_what_is_no_arithmetic_is_refused(wrong):
    with pytest.raises(ValueError, match="no arithmetic"):
        mathml(wrong)
