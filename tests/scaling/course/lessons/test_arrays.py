"""Lesson 2: the drawing of an array on a mesh, and what the lesson tells the reader to run."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scaling.cli.main import main
from scaling.course.lessons.notebooks import __path__ as folders
from scaling.pictures.arrays import array_on_mesh, parts
from scaling.pictures.svg import svg_text

MESH = {"X": 2, "Y": 4}


@pytest.mark.parametrize(
    ("text", "rows", "columns"),
    [("A[I,J]", 1, 1), ("A[I_X,J_Y]", 2, 4), ("A[I_YX,J]", 8, 1), ("A[I,J_X] {U_Y}", 1, 2)],
)
def test_every_part_of_the_array_is_held(text, rows, columns):
    held = {(part.row, part.column) for part in parts(text, MESH)}
    assert held == {(row, column) for row in range(rows) for column in range(columns)}


def test_the_order_of_axes_says_who_holds_which_rows():
    xy, yx = ([p.row for p in parts(text, MESH)] for text in ("A[I_XY,J]", "A[I_YX,J]"))
    assert xy == list(range(8)) and sorted(yx) == xy and yx != xy


def test_a_drawing_has_the_array_and_every_device():
    drawn = svg_text(array_on_mesh("A[I_X,J] {U_Y}", MESH, chosen=5))
    assert drawn.count("<rect") == 2 + 2 * 8
    assert drawn.count('stroke-width="4"') == 2
    assert "device 7" in drawn and "term 3" in drawn and "4, 5, 6, 7" in drawn


@pytest.mark.slow
def test_jax_draws_the_array_of_the_lesson():
    source = (Path(next(iter(folders))) / "lesson_02.py").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", source, re.DOTALL)[1]
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "bfloat16[4096@X,16384@Y]" in printed and str(16 * 2**20) in printed
    assert "CPU 7" in printed


@pytest.mark.slow
def test_the_trainer_holds_what_the_lesson_says(capsys):
    pytest.importorskip("marimo", reason="lessons are marimo notebooks")
    lesson = importlib.import_module("scaling.course.lessons.notebooks.lesson_02")
    assert main(["sharding", "llama3-8b", "--mesh", "fsdp=2,tensor=4"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "key_DMK" in line)
    megabytes = int(line.split()[-1].replace(",", "")) / 1e6
    assert megabytes == pytest.approx(lesson.app.run()[1]["keys"])
