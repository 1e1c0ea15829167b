"""The game on measured sweeps: its file, tries, verdict, and what others choose."""

import json
import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaling as sc
from experiments.published import sweep_game
from experiments.published.sweeps import problems
from scaling.cli.main import main
from scaling.course.sweeps.game import FILE, TRIES, Row, SweepGame, find_problem, play_sweep, sweep
from scaling.meshes.errors import InputError

EVERY = [problem.name for problem in sweep().problems]
NAME = "3.57B-128-sick"


def row(seconds, sequences):
    return Row(1, 1, 8, 0, sequences, seconds, 1.0, 1.0, None)


def small(times):
    """A problem with these times; None ran out of memory."""
    rows = tuple(row(seconds, i) for i, seconds in enumerate(times))
    model, bus = {"name": "small"}, {"inside": 1.0, "across": 1.0}
    return find_problem(NAME).__class__(
        *("small", model, 8, 8, 1, "sound", bus),
        *(0, (0,), (0,), rows),
    )


def test_a_problem_says_nothing_by_the_order_of_its_rows_and_has_none_twice():
    for problem in sweep().problems:
        chosen = [(r.tensor, r.stage, r.data, r.zero, r.sequences) for r in problem.rows]
        assert chosen == sorted(set(chosen))
        assert all(t * s * d == problem.gpus for t, s, d, *_ in chosen)
        assert len(problem.rows) > TRIES


def test_the_game_is_played_in_python():
    game = sc.learn.play_sweep(NAME, [])
    assert game.left == TRIES and game.problem in sc.learn.sweep().problems


def test_the_file_has_every_measured_problem():
    measured = [p for p in problems() if p.source == "Ultra-Scale Playbook"]
    assert len(measured) == len(EVERY)
    for problem, ours in zip(measured, sweep().problems, strict=True):
        times = sorted(row.step_time for row in problem.ran)
        assert ours.times == tuple(times) and len(ours.rows) == len(problem.rows)


def test_what_the_file_says_of_choosers_is_what_they_choose_today():
    """Else: python -m experiments.published.sweep_game."""
    problem = next(p for p in problems() if p.name.endswith("llama 3.57B|8|256|4096"))
    today = json.loads(json.dumps(sweep_game.described(problem)))
    stored = json.loads(FILE.read_text())["problems"][0]
    same_but_for_last_digits(today, stored)


def same_but_for_last_digits(one, other):
    figures = lambda row: [-1.0 if figure is None else figure for figure in row]
    for mine, stored in zip(one.pop("rows"), other.pop("rows"), strict=True):
        assert figures(mine) == pytest.approx(figures(stored), rel=1e-3)
    assert one == other


@pytest.mark.slow
def test_the_file_is_what_the_script_makes_today():
    made = json.loads(FILE.read_text())
    again = json.loads(json.dumps(sweep_game.document(made["made"]["date"])))
    for one, other in zip(again.pop("problems"), made.pop("problems"), strict=True):
        same_but_for_last_digits(one, other)
    assert again == made


@pytest.mark.parametrize("name", EVERY)
def test_every_configuration_can_be_named_and_its_time_is_told(name):
    problem = find_problem(name)
    for one in problem.rows:
        assert problem.find(str(one)) is one
    first = play_sweep(name, [str(problem.rows[0])])
    assert problem.rows[0].said in str(first)


def test_out_of_memory_costs_a_try_and_the_best_ends_the_game():
    problem = find_problem(NAME)
    out = [r for r in problem.rows if r.seconds is None]
    game = play_sweep(NAME, [str(out[0])])
    assert (game.left, game.best, game.is_over) == (TRIES - 1, None, False)
    assert "choices" in game.to_dict() and "verdict" not in game.to_dict()
    best = min((r for r in problem.rows if r.seconds), key=lambda r: r.seconds)
    won = play_sweep(NAME, [str(out[0]), str(best)])
    assert won.is_over and won.rank == 1 and won.left == TRIES - 2
    assert won.to_dict()["verdict"]["lost"] == 0


def test_five_that_ran_out_of_memory_are_a_verdict_too():
    game = SweepGame(small([None] * 5 + [1.0]), tuple(row(None, i) for i in range(5)))
    assert game.is_over and game.rank is None and game.luck is None
    assert "all ran out of memory" in str(game) and game.to_dict()["verdict"]["lost"] is None


@given(st.lists(st.one_of(st.none(), st.floats(0.1, 9)), min_size=TRIES, max_size=8))
def test_luck_is_the_share_of_all_draws_that_do_as_well(times):
    ran = [t for t in times if t is not None]
    if not ran:
        return
    problem, seconds = small(times), sorted(ran)[len(ran) // 2]
    draws = list(combinations([math.inf if t is None else t for t in times], TRIES))
    as_well = sum(min(draw) <= seconds for draw in draws)
    assert problem.luck(seconds) == pytest.approx(as_well / len(draws))
    assert problem.rank(min(ran)) == 1 and problem.lost(row(min(ran), 0)) == 0


@pytest.mark.parametrize(
    ("tries", "said"),
    [
        (["tensor"], "cannot be read"),
        (["tensor=-1"], "cannot be read"),
        (["tensor=1,tensor=2"], "cannot be read"),
        (["tensor=9e99"], "cannot be read"),
        (["zero=2"], "zero was 0 or 1; this costs no try"),
        (["tensr=1"], "did you mean 'tensor'"),
        (["tensor=1,stage=2,zero=1"], "say also sequences 1, 2 or 4"),
        (["tensor=1,stage=2,zero=1,sequences=4"] * 2, "given twice"),
        ([""], "cannot be read"),
    ],
)
def test_a_try_that_cannot_be_made_says_why(tries, said):
    with pytest.raises(InputError, match=said):
        play_sweep(NAME, tries)


def test_more_than_five_tries_are_refused():
    with pytest.raises(InputError, match="there are 5"):
        play_sweep(NAME, [str(r) for r in find_problem(NAME).rows[: TRIES + 1]])


def test_the_command_lists_plays_and_prints_a_document(capsys):
    assert main(["learn", "sweep"]) == 0
    assert capsys.readouterr().out.count("configurations") == len(EVERY)
    assert main(["learn", "sweep", "8.86b-8", "--json", "--try", "tensor=8,sequences=1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["left"] == TRIES - 1 and document["tries"][0]["tensor"] == 8
    for words in (["sweep", "nothing"], ["sweep", "--try", "tensor=1"], ["quiz", "--try", "x"]):
        assert main(["learn", *words]) == 2
    assert "takes no --try" in capsys.readouterr().err
