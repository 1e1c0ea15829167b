"""Lesson 3: steps of collectives around a ring, lines through sweeps, and their drawings."""

import pytest

from scaling.course.lessons.lesson3_lines import AlphaBetaLine, through
from scaling.pictures.curves import sweep
from scaling.pictures.ring import KINDS, frames, ring
from scaling.pictures.svg import svg_text


@pytest.mark.parametrize("members", [2, 3, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_everyone_sends_what_it_receives_and_finishes(kind, members):
    run = frames(kind, members)
    assert len(run) - 1 == (2 if kind == "all-reduce" else 1) * (members - 1)
    for before, after in zip(run, run[1:], strict=False):
        for end in (0, 1):
            assert sorted(send[end] for send in after.sends) == list(range(members))
        assert all(before.terms[source][piece] for source, _, piece in after.sends)
    finished = [row.count(run[0].full) for row in run[-1].terms]
    assert finished == [1 if kind == "reduce-scatter" else members] * members


@pytest.mark.parametrize("members", [2, 5])
def test_a_sum_gets_one_term_with_every_step(members):
    for step, frame in enumerate(frames("reduce-scatter", members)):
        assert max(map(max, frame.terms)) == step + 1
        sent = {(target, piece) for _, target, piece in frame.sends}
        assert all(frame.terms[m][p] == step + 1 for m, p in sent)


def test_a_drawing_marks_what_came():
    start, first, *_ = frames("all-gather", 4)
    drawn = svg_text(ring(first))
    assert 'stroke-width="4"' not in svg_text(ring(start))
    assert drawn.count('stroke-width="4"') == 4 and "sent 3 to GPU 0" in drawn


def test_a_line_is_found_again():
    truth = AlphaBetaLine(1e-4, 4e11)
    times = {2**power: truth.seconds(2**power) for power in (16, 20, 30)}
    found = through(times)
    assert found.alpha == pytest.approx(1e-4) and found.bandwidth == pytest.approx(4e11)
    assert found.worst(times) < 1e-9 and found.half == pytest.approx(4e7)
    assert through({2**20: 2e-3, 2**26: 1e-9}) is None
    assert svg_text(sweep(times, {"line": found.seconds})).count("bytes: ") == 3
