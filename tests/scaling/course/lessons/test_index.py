"""Which lessons there are, and how one is opened."""

import subprocess
import sys

import pytest

from scaling.cli.main import main
from scaling.course.lessons import index


def test_lessons_are_numbered_in_order():
    numbers = [one.number for one in index.lessons()]
    assert numbers == sorted(set(numbers))
    assert all(f"lesson_{one.number:02}" == one.file.stem for one in index.lessons())


def test_labs_are_numbered_in_order():
    assert [f"lab_{one.number}" for one in index.labs()] == [one.file.stem for one in index.labs()]


@pytest.mark.parametrize("words", [("lesson", "1"), ("lab", "2")])
def test_one_is_served_on_loopback_only(monkeypatch, words):
    started = []

    def run(command, check, env):
        started.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(index.subprocess, "run", run)
    assert main(["learn", *words]) == 0
    (command,) = started
    assert command[:4] == [sys.executable, "-m", "marimo", "run"]
    assert command[-2:] == ["--host", "127.0.0.1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lesson", "99"], "there is no lesson"),
        (["lesson"], "learn lesson 1"),
        (["lab", "x"], "there is no lab 'x'; there are"),
        (["lab"], "learn lab 1"),
    ],
)
def test_one_that_there_is_not(capsys, words, said):
    assert main(["learn", *words]) == 2
    assert said in capsys.readouterr().err


def test_without_marimo_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setattr(index.importlib.util, "find_spec", lambda name: None)
    assert main(["learn", "lesson", "1"]) == 2
    assert "jax-scaling[lessons]" in capsys.readouterr().err


def test_all_are_listed(capsys):
    assert main(["learn"]) == 0
    printed = capsys.readouterr().out
    assert "lesson  1  Where does a matmul" in printed and "quiz gpu-q2.3" in printed
    assert "Two measurements, two unknowns" in printed
