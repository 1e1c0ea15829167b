"""What the labs compute with: the inversion of two measurements, and the museum's file."""

import pytest

from scaling.lessons import museum, two_unknowns


def test_two_lines_cross_where_both_leave_the_same_rest():
    """One machine takes 2 ms a token, the other 1, and 100 ms that are outside both."""
    lengths = tuple(range(10, 200, 10))
    measured = (100 + 2 * 55, 100 + 1 * 55)
    rests = [
        [seconds - slope * at for at in lengths]
        for seconds, slope in zip(measured, (2, 1), strict=True)
    ]
    tokens, rest = two_unknowns.crossing(*rests, lengths)
    assert tokens == pytest.approx(55, rel=0.01) and rest == pytest.approx(100, rel=0.01)


@pytest.mark.parametrize("gap", [1.0, -1.0])
def test_lines_that_do_not_cross_give_nothing(gap):
    assert two_unknowns.crossing((2.0 + gap, 1.0 + gap), (2.0, 1.0), (512, 1024)) is None


def test_every_exhibit_says_what_happened_in_units_and_words():
    assert all(one.claim and one.where and one.question.reason for one in museum.exhibits())
    titles = [one.title for one in museum.exhibits()]
    assert len(set(titles)) == len(titles)
    assert all(len(one.question.slips) <= 1 for one in museum.exhibits())
