"""The page of an answer: whoever computes a formula that it shows gets the number that it names."""

import re

import pytest

import scaling as sc
from scaling.meshes.formula import evaluate
from scaling.questions.answer import Answer, textbook
from scaling.questions.page import show

QUESTIONS = {
    "limits": lambda: sc.limits("llama3-8b", "dgx-h100", 8),
    "limits of experts on a mesh": lambda: sc.limits(
        "mixtral-8x7b", "dgx-h100", 8, mesh="fsdp=4,expert=8,tensor=2"
    ),
    "limits of a torus": lambda: sc.limits("llama3-8b", "tpu-v5p", 16),
    "budget": lambda: sc.budget("llama3-8b", tokens="100B", cluster="p4d", devices=8, mfu=0.4),
    "serve": lambda: sc.serve("llama3-70b", "dgx-h100", batch=32, context=8192),
    "array": lambda: sc.array("A[I_X,J] @ B[J_X,K] -> C[I,K]", "X=8", "I=512,J=4096,K=4096", "p5"),
    "kernel": lambda: sc.kernel("matmul", (8192, 8192, 8192), accelerator="h100-sxm"),
    "chip": lambda: sc.chip("h100-sxm"),
    "count": lambda: sc.count("llama3-8b", tokens="15T"),
}
# A heading, and below it the formula and the same with numbers
SUM = re.compile(r"^ *(.*): (.*)\n +(textbook )?= .*\n +(?=[= ])= (.*)$", re.MULTILINE)
ROUNDED = 2e-3  # relative: numbers are shown with four digits


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_formula_with_its_numbers_gives_the_number_it_stands_for(question):
    answer = QUESTIONS[question]()
    shown = {(one.name, show(one.answer, one.unit)): one for one in _all(answer)}
    sums = SUM.findall(str(answer))
    assert sums
    for name, number, by_textbook, numbers in sums:
        one = shown[name, number.partition(" (")[0]]
        stated = one.ideal if by_textbook else one.answer
        assert evaluate(numbers, {}) == pytest.approx(float(stated), rel=ROUNDED), name


def test_a_fitted_number_does_not_stand_above_the_formula_of_another():
    limit = sc.limits("llama3-8b", "dgx-h100", 8)
    assert limit.answer != limit.ideal
    first, second = str(limit).splitlines()[1:3]
    assert first.startswith("  textbook = C / W") and second.startswith("           = 9.894e14")
    assert str(textbook(limit)).splitlines()[1].startswith("  = C / W")


def _all(answer: Answer) -> list[Answer]:
    return [answer, *(one for part in answer.parts for one in _all(part))]
