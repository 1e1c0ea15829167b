"""Steps compiled with machine code and without: what is compared, counted and shown."""

from typing import Any

from experiments import kernels_left_out
from experiments.kernels_left_out import Both, Row, page, table

SAME = Row("a", 8, 1200, 4.0, 2.0, True, True, "0.10.2")


class Compiled:
    """A compiled step of a text and a plan."""

    def __init__(self, text: str, plan: str) -> None:
        self.as_text = lambda: text
        self.memory_analysis = lambda: plan


def row_of(monkeypatch: Any, with_kernels: Compiled, without: Compiled) -> Row:
    monkeypatch.setattr(kernels_left_out, "compile_with", lambda *_: with_kernels)
    monkeypatch.setattr(kernels_left_out, "compile_without_kernels", lambda *_: without)
    both = Both("a")
    assert both(None, {}) is without
    return both.row


def test_texts_and_plans_are_compared_letter_by_letter(monkeypatch) -> None:
    row = row_of(monkeypatch, Compiled("text", "plan"), Compiled("text", "plan"))
    assert (row.letters, row.same_text, row.same_plan) == (4, True, True)
    row = row_of(monkeypatch, Compiled("text", "plan"), Compiled("texts", "plan 2"))
    assert (row.letters, row.same_text, row.same_plan) == (5, False, False)


def test_the_page_counts_what_was_compiled_and_shows_what_differs() -> None:
    rows = [SAME, Row("b", 1, 10, 1.0, 0.5, False, True), Row("c", error="ValueError: no")]
    text = page(rows, "abc", {"jax": "0.10.2"})
    assert "3 programs, 2 compiled; text and plan are the same for 1." in text
    assert "median 0.50, together 0.50" in text
    a, b, c = table(rows).splitlines()[1:]
    assert a.split()[-3:] == ["0.50", "same", "same"]
    assert b.split()[-2:] == ["other", "same"] and "ValueError: no" in c
