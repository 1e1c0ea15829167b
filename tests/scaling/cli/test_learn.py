"""`scaling learn` refuses what it would not read."""

import pytest

from scaling.cli.commands import GENERATED
from scaling.cli.generated import options_of
from scaling.cli.learn import TAKES
from scaling.cli.main import main


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("list gpu-q2.3", "'gpu-q2.3'"),
        ("list --guess 3", "--guess"),
        ("lesson 1 extra", "'extra'"),
        ("lab 1 --json", "--json"),
        ("quiz gpu-q2.3 extra", "'extra'"),
        ("quiz gpu-q2.3 --plot a.svg", "--plot"),
        ("puzzles 3", "'3'"),
        ("puzzle 1 --source stored", "--source"),
        ("check 1 a.json --start b.json", "--start"),
    ],
)
def test_a_word_that_would_change_nothing_is_refused(words, refused, capsys):
    assert main(["learn", *words.split()]) == 2
    what = words.split()[0]
    assert f"scaling learn {what} takes no {refused}" in capsys.readouterr().err


def test_every_word_says_what_it_takes():
    known = {option.parameter for option in options_of(GENERATED["learn"])}
    assert all(known.issuperset(taken) for taken in TAKES.values())
    assert main(["learn", "list"]) == 0
