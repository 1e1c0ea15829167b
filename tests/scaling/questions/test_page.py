"""The page of an answer: whoever computes a formula that it shows gets the number that it names."""

import re

import pytest

import scaling as sc
from scaling.meshes.formula import evaluate
from scaling.meshes.units import format_days
from scaling.questions.answer import Answer, in_one_unit, textbook
from scaling.questions.page import show
from scaling.questions.short import LINES, short_page

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
    answer = in_one_unit(QUESTIONS[question]())
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


def test_a_short_page_shows_what_an_option_asks_for():
    asked = {"batch": 32, "context": 8192, "prompt": 8192, "generate": 512, "step_time": 0.02}
    served = short_page(sc.serve("llama3-70b", "dgx-h100", **asked))
    for name in ("largest batch within the step time", "prefill", "request latency"):
        assert f"\n  {name}: " in served
    sizes = (512, 8192, 4096)
    swept = sc.kernel("matmul", sizes, accelerator="h100-sxm", sweep="m=1:8192")
    lines = short_page(swept).splitlines()
    assert lines[1].split()[0] == "m" and [line.split()[0] for line in lines[2:4]] == ["1", "4"]
    assert len(lines) <= LINES


@pytest.mark.parametrize(
    "value, shown",
    [
        (1e30, "1e30 rows"),
        (9.28883e-6, "0.000009289 rows"),
        (1.944e-12, "1.944e-12 rows"),
        (123456.7, "123,457 rows"),
    ],
)
def test_numbers_have_no_digits_that_are_not_known(value, shown):
    assert show(value, "rows") == shown


def test_a_range_whose_ends_are_alike_is_not_shown():
    assert str(Answer("money", 7.72, "dollars", low=7.72, high=7.7200001)) == "money: 7.72 dollars"


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_short_page_has_twelve_lines_at_most_and_begins_like_the_whole_one(question):
    answer = QUESTIONS[question]()
    short, whole = short_page(answer).splitlines(), str(answer).splitlines()
    assert len(short) <= LINES
    assert short[0] == whole[0]
    assert short == whole or re.search(r"\d+ more lines by --all", short[-1])


def test_a_short_page_says_what_is_wrong_with_a_part():
    asked = {"samples": 10**6, "batch": 64, "step_time": 1.0, "cluster": "rtx4090-8"}
    assert re.search(r"MFU: [\d.]+; above 1", short_page(sc.budget("llama3-8b", **asked)))


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_page_has_sizes_of_one_kind(question):
    """Links that bind and notes are sentences of their own."""
    lines = str(QUESTIONS[question]()).splitlines()
    page = "\n".join(line for line in lines if not re.match(r" *(binds|note): ", line))
    decimal, binary = (re.search(rf"\d {unit}\b(?!/s)", page) for unit in ("[kMGT]B", "[KMGT]iB"))
    assert not (decimal and binary)


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_number_of_a_page_is_written_with_e_plus(question):
    assert not re.search(r"\de\+\d", str(QUESTIONS[question]()))


def test_long_times_are_years():
    assert [format_days(days * 86_400) for days in (40, 1000, 1753, 365_250)] == [
        "40 days",
        "1,000 days",
        "4.8 years",
        "1,000 years",
    ]


def _all(answer: Answer) -> list[Answer]:
    return [answer, *(one for part in answer.parts for one in _all(part))]
