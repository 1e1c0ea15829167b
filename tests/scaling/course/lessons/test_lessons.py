"""Lessons and labs run from top to bottom; their tests pass; no number in a text is typed."""

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scaling.course.lessons.lab3_testbed import why_not_here
from scaling.course.quizzes.common_mistakes import diagnose, mistake
from scaling.meshes.formula import evaluate, symbols
from scaling.questions.answer import Answer
from scaling.questions.page import show
from scaling.training.run_folder.metrics import read_metrics
from tests.scaling.course.lessons.notebooks import FOLDER, LABS, LESSONS, NOTEBOOKS, ran

pytest.importorskip("marimo", reason="lessons are marimo notebooks: pip install '.[lessons]'")
parts = importlib.import_module("scaling.course.lessons.parts")  # which needs marimo
# A number with a unit that is typed into a text; in an f-string it would stand in braces.
TYPED = re.compile(
    r"(?<![\w.*{])\d[\d,.]*\s?(?:ms|us|s|GB/s|GiB|GB|MB|TFLOPs?(?:/s)?|tokens|%|times)(?![\w}])"
)


def html(outputs: tuple[object, ...]) -> str:
    return "\n".join(str(getattr(output, "text", "")) for output in outputs if output is not None)


def test_there_are_lessons():
    assert LESSONS and LABS


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_runs_and_has_what_every_lesson_has(name):
    shown = html(ran(name)[0])
    for part in ("Take away", "Three problems", "Where the model is wrong", "On paper"):
        assert part in shown, f"{name} has no {part!r}"
    assert "In the simulator" in shown and "On the trainer" in shown
    assert "aria-label" in shown, f"{name} has no picture with a description"
    assert "<h1" in shown and "Afterwards you can" in shown


@pytest.mark.parametrize("name", LABS)
def test_a_lab_runs_and_has_checked_answers(name):
    shown = html(ran(name)[0])
    for part in ("Take away", "Where the model is wrong", "Afterwards you can", "<h1"):
        assert part in shown, f"{name} has no {part!r}"
    assert "aria-label" in shown, f"{name} has no picture with a description"
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    checked = re.findall(r"page\.verdict\(|parts\.(?:on_paper|in_simulator|on_trainer)\(", source)
    assert len(checked) >= 2, f"{name} checks fewer than two answers"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_nothing_stands_below_the_guess_before_it_is_made(name, monkeypatch):
    """No problem, table or picture, which could hold the answer."""
    monkeypatch.setattr(parts, "guessed", lambda field: parts.mo.stop(True))
    module = importlib.import_module(f"scaling.course.lessons.notebooks.{name}")
    shown = [html((output,)) for output in module.app.run()[0]]
    (field,) = [i for i, text in enumerate(shown) if parts.OPENS in text]
    assert not any(shown[field + 1 :]), f"{name} shows more than its question"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_guess_that_betrays_a_mistake_is_told_it(name):
    """Every notebook diagnoses its guess, and says nothing of the factor before the second try."""
    asked = ran(name)[1]["page"].asked
    answer, _ = asked.answer
    assert answer and asked.mistakes
    for one in map(mistake, asked.mistakes):
        for ratio in one.ratios:
            found = diagnose(answer * ratio, answer, asked.tolerance, asked.mistakes)
            assert one in found.mistakes and one.sentence in found.hint, f"{name}: {one.name}"
            assert f"{one.factor:.3g}" not in found.hint.split("\n")[0]


# Lessons whose unit is another one there, or whose guess is of the program and not of the rule.
OWN_NUMBERS = ("lesson_04", "lesson_09", "lesson_11", "lesson_12")


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_derives_its_formula_and_has_the_guess_on_a_ladder(name):
    shown = html(ran(name)[0])
    assert shown.count("<math ") >= 10 and "Why</" in shown
    answer, unit = ran(name)[1]["page"].asked.answer
    if name not in OWN_NUMBERS:  # what was derived, filled in, is the answer to the guess
        derived = shown.partition("With the numbers of this lesson:")[2]
        assert re.match(rf"\D*{re.escape(show(answer, '').split()[0])}", derived), derived[:200]
    rungs = re.findall(r"<strong>(\w+)</strong></td>", shown)
    assert "guess" in rungs and set(rungs) >= {"guess", "textbook"} or name == "lesson_13"
    assert "none was given" not in shown


def derivation(name: str) -> list[tuple[str, str]]:
    """The lines of a lesson's derivation, from its source."""
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    (call,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "derivation"
    ]
    return [ast.literal_eval(line) for line in call.args]


def holds(relation: str, values: dict[str, float]) -> bool:
    """Whether an inequality is true of these numbers."""
    left, sign, right = re.split(r"\s([<>])\s", relation)
    difference = evaluate(left, values) - evaluate(right, values)
    return difference > 0 if sign == ">" else difference < 0


@pytest.mark.parametrize("name", LESSONS)
@given(data=st.data())
def test_the_last_line_of_a_derivation_says_what_was_put_in(name, data):
    """Both are true of the same numbers; lessons without such a line have formulas alone."""
    lines = derivation(name)
    assert 8 <= len(lines) <= 10 or name == "lesson_01"
    assert sum(words.startswith("the question: ") for _, words in lines) == 1
    put = [i for i, (_, words) in enumerate(lines) if words == "both put in"]
    if not put:
        return
    before, after = lines[put[0]][0], lines[put[0] + 1][0]
    used = {*symbols(before), *symbols(after)}
    values = {name: data.draw(st.floats(1.5, 50), label=name) for name in sorted(used)}
    sides = [evaluate(side, values) for side in re.split(r"\s[<>]\s", after)]
    assume(abs(sides[0] / sides[1] - 1) > 1e-6)  # not at the limit itself
    assert holds(before, values) == holds(after, values)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("lesson_05", "fsdp, forward"),
        ("lesson_06", "largest tensor axis"),
        ("lesson_10", "tokens per device from which a ring over context is hidden"),
    ],
)
def test_a_derivation_ends_at_the_formula_that_is_computed(name, part):
    """The limit that was derived is the textbook's number, with the figures of its inputs."""
    definitions = ran(name)[1]
    answer = next(
        value for value in definitions.values() if isinstance(value, Answer) and value.name == part
    )
    given = {one.symbol: float(one.value) for one in answer.inputs}
    (limit,) = [formula for formula, words in derivation(name) if "drop" in words]
    symbol, right = re.split(r"\s[<>]\s", limit)
    if name == "lesson_06":  # its axis is X in the answer; both say how many chips it joins
        given["Y"] = given["X"]
    assert evaluate(right, given) == pytest.approx(answer.ideal, rel=1e-6)
    assert symbol not in ("", right)


# Answers to the problems by hand: a number, or the two that it lies between; None: measured.
H100, A100, B200 = (989.4e12, 3.35e12), (312e12, 2.039e12), (2250e12, 900e9)  # FLOP/s, bytes/s
TINY = 2 * 256 * 64 + 2 * (6 * 64 * 32 + 3 * 64 * 128)  # its matrices; norms: 5 * 64
LAYER = 8192 * (2 * 8192 + 2 * 1024) + 3 * 8192 * 28672  # weights of a layer of llama3-70b
CABLE = 2 * 1024 * 256 + 4 * (4 * 256**2 + 3 * 256 * 1024) + 9 * 256  # parameters of lab 3
BY_HAND = {
    "lesson_01": (H100[0] / H100[1] / 2, 1e3 * 3 * 4 * 2**30 / A100[1], None),
    "lesson_02": (8 * 2, 1e6 * 8192 * 16384 / 32 / H100[1], 32 * 4096 * 8 * 128 * 4 / 8 / 1e6),
    "lesson_03": (1e3 * 2 * 7 / 8 * 2**28 / 300e9, 1e3 * 3 / 4 * 2**31 / 400e9, None, None),
    "lesson_04": (
        (12 * 8192**2 + 2 * 8192) / 1e6,
        2 * 2 * LAYER / (4 * 8192),  # half the scores: twice the context
        4 * (TINY + 2 * 3 * 64 * 128 + 5 * 64),
    ),
    "lesson_05": (B200[0] / B200[1], 4 * H100[0] / 400e9 * 15 / 16, 4 * (TINY / 8 + 5 * 64)),
    "lesson_06": (28672 * B200[1] / B200[0], 28672 * 800e9 / B200[0], 4 * 4 + 2),
    "lesson_07": ((2**18 * 64 / 16384) ** 0.5, (1, 8), 1),
    "lesson_08": (2475 * 128 / 4, 1e3 * 2**26 * 7 / 8 / 450e9, 1),
    "lesson_09": (100 * 7 / (2 * 16 + 7), 19 * 7, 2 * (8 + 2 - 1)),
    "lesson_10": (16384 * 2 * 8 * 64 * 2, 2 * 2250e12 / 50e9 * 8 / 64, 1),
    "lesson_11": (70e9 * 16 / 80e9, (1, 4 / 3), 1),
    "lesson_12": (1, (1, 1.5), None),
    "lesson_13": (
        6 * 70e9 * 15e12 / (4096 * 990e12 * 0.45) / 86400,
        -(-16 * 405.85e9 // 85_899_345_920),
        8 * 32 * 20,
    ),
    "lab_2": (1 / 2, (512, 4096 / 2)),
    "lab_3": (6 * CABLE / 1e6, 1e3 * 6 * CABLE / 25e6),
    "lab_4": (2 * 3 / 4 * 40e9 / 32e9, (5 * 1.875, 60)),
    "lab_5": (2 * 127 / 128 * 4 / 50.3, 0.74227 / 0.3968 - 1),
}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_answers_of_the_problems_are_those_by_hand(name):
    problems = getattr(ran(name)[1].get("problems"), "problems", ())
    for problem, by_hand in zip(problems, BY_HAND.get(name, ()), strict=True):
        answer, _ = problem.answer
        if isinstance(by_hand, tuple):
            assert by_hand[0] < answer < by_hand[1], problem.text
        else:
            assert answer == (by_hand and pytest.approx(by_hand, rel=1e-3)), problem.text


@pytest.mark.parametrize(
    ("name", "guess", "told"),
    [
        ("lesson_04", 6 * 8.03, "scores"),  # GFLOPs by 6 N alone
        ("lesson_05", H100[0] / H100[1] * 3350 / 450, "ring"),  # C / W, as for many devices
        ("lesson_06", 14336 * 450e9 / H100[0], "ring"),  # F W / C, as for a long axis
        ("lesson_06", 8, "whole node"),  # all of a node, which is more than do not wait
        ("lesson_06", 7, ""),
    ],
)
def test_a_guess_is_told_what_it_forgot(name, guess, told):
    asked = ran(name)[1]["page"].asked
    found = diagnose(guess, asked.answer[0], asked.tolerance, asked.mistakes)
    assert [one.name for one in found.mistakes] == [told] * bool(told)
    assert found.right == (not told)


def test_lesson_7_has_one_number_for_fsdp_alone():
    shown = re.sub(r"<[^>]+>", " ", html(ran("lesson_07")[0]))
    (said,) = re.findall(r"fsdp alone needs ([\d,]+) to hide", " ".join(shown.split()))
    assert re.search(rf"64 +1 +[\d,]+ tokens +{said.replace(',', ',?')} tokens", shown)


def test_lesson_11_is_about_one_cluster():
    shown = ran("lesson_11")[1]["steps"].values()
    assert {step.memory.capacity < 85_899_345_920 for step in shown} == {True}, "80 GiB of an H100"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_number_with_a_unit_is_typed_into_the_text(name):
    """Texts compute what they state; "25 minutes" and names of sizes are no results."""
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    typed = [found[0] for found in TYPED.finditer(source.split("app = marimo.App", 1)[1])]
    assert not typed, f"{name}: compute {typed}"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_reader_must_guess_first(name):
    """Cells that show an answer take it from the page, which a guess opens."""
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert source.index("parts.guess(") < source.index("parts.opened(")
    assert source.index("parts.opened(") < source.index("page.takeaway(")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_follows_the_readers_theme(name):
    assert (FOLDER / f"{name}.py").read_text(encoding="utf-8").startswith("# /// script\n")


def test_without_a_guess_a_reader_is_stopped_and_a_script_is_not(monkeypatch):
    class Field:
        value = None

    class Stop(Exception):
        pass

    class Notebook:
        def __init__(self, mode, guess=None):
            self.mode, self.guess = mode, guess

        def app_meta(self):
            return self

        def cli_args(self):
            return {"guess": self.guess}

        def stop(self, condition):
            if condition:
                raise Stop

    def guessed(*how):
        monkeypatch.setattr(parts, "mo", Notebook(*how))
        return parts.guessed(Field)

    assert guessed("script") == 1.0 and parts.chosen(Field) is None
    for mode in ("run", "edit"):
        with pytest.raises(Stop):
            guessed(mode)
        with pytest.raises(Stop):
            parts.chosen(Field)
    assert guessed("run", "2.5") == 2.5  # an executed page
    Field.value = 3
    assert guessed("run") == parts.chosen(Field) == 3.0


@pytest.fixture
def reader(monkeypatch):
    """Somebody who reads a lesson: what they write, and what the cell that opens the page shows."""

    class Stop(Exception):
        pass

    def stop(condition, output=None):
        if condition:
            raise Stop(getattr(output, "text", ""))

    monkeypatch.setattr(parts.mo, "stop", stop)
    monkeypatch.setattr(parts.mo, "cli_args", dict)
    monkeypatch.setattr(parts, "_has_reader", lambda: True)
    field = parts.guess("How many?", "tokens")

    def writes(number, answer=137.0):
        if number is not None:
            field._update(number)
        try:
            return parts.opened(field, answer, ("both directions", "bits"))
        except Stop as stopped:
            return str(stopped)

    return writes


def test_a_wrong_first_guess_is_told_its_mistake_and_not_the_number(reader):
    assert reader(None) == ""
    said = reader(274)
    assert "Too high" in said and "both directions of a link" in said and "second guess" in said
    assert "137" not in said and "factor of 2" not in said
    page = reader(130)
    assert page.tries == (274, 130) and page.guess == 130
    assert "**274**, then **130**; it is **137 tokens**" in page.guessed
    assert reader(50).tries == (130, 50)  # a third one changes what is shown


def test_a_right_first_guess_opens_the_page_and_another_chip_does_not_close_it(reader):
    assert reader(140).guessed == "You guessed **140**; it is **137 tokens**."
    again = reader(None, answer=1000.0)  # the question is of another chip now
    assert "bits were taken for bytes" not in again.guessed and "(-86%)" in again.guessed


def test_a_second_wrong_guess_opens_the_page_with_its_mistake(reader):
    assert "Too low, by more than a factor of ten" in reader(2)
    assert "bits were taken for bytes" in reader(8 * 137).guessed


@pytest.mark.parametrize("name", LESSONS[:1])
def test_a_lesson_is_a_script(name):
    subprocess.run([sys.executable, str(FOLDER / f"{name}.py")], check=True, timeout=300)


# What lessons ask the reader to train twice, and whose last losses they say are the same.
PAIRS = {
    "07": ("tiny", ("--mesh", "fsdp=8"), ("--mesh", "fsdp=4,tensor=2")),
    "08": ("tiny-moe", ("--mesh", "fsdp=8"), ("--mesh", "fsdp=2,expert=4")),
    "10": (
        "tiny",
        ("--mesh", "fsdp=8", "--set", "batch.seq_len=64"),
        ("--mesh", "fsdp=2,context=4", "--set", "batch.seq_len=64"),
    ),
    "11": ("tiny", ("--set", "remat=none"), ("--set", "remat=full")),
}


@pytest.mark.slow
@pytest.mark.parametrize("number", PAIRS)
def test_a_trainers_problem_runs_as_the_lesson_says_and_has_its_answer(number, tmp_path):
    recipe, *pair = PAIRS[number]
    source = (FOLDER / f"lesson_{number}.py").read_text(encoding="utf-8")
    assert f'"{recipe}"' in source and pair[1][1].rpartition(",")[2] in source
    losses = []
    for place, options in zip(("one", "two"), pair, strict=True):
        words = ["train", recipe, "--devices", "8", "--steps", "20", *options]
        command = [sys.executable, "-m", "scaling", *words, "--run-dir", str(tmp_path / place)]
        subprocess.run(command, check=True, timeout=300, capture_output=True)
        losses.append(
            [line["loss"] for line in read_metrics(tmp_path / place) if "loss" in line][-1]
        )
    assert losses[1] / losses[0] == pytest.approx(1, abs=0.001)


def typed_in(folder: Path, commands: tuple[str, ...], **environment: str) -> None:
    """Run a lesson's commands as a reader types them, in an empty folder."""
    ours = f"{sys.executable} -m scaling "
    for command in commands:
        line = command.removeprefix("sudo ").replace("scaling ", ours)
        line = line.replace("python -c", f"{sys.executable} -c")
        done = subprocess.run(
            line, shell=True, cwd=folder, env=os.environ | environment, timeout=300, text=True,
            capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"


@pytest.mark.slow
def test_the_best_plan_is_trained_as_lesson_13_says(tmp_path):
    definitions = ran("lesson_13")[1]
    typed_in(tmp_path, definitions["commands"])
    last = [line for line in read_metrics(tmp_path / "runs" / "best") if "loss" in line][-1]
    assert last["tokens_seen"] == definitions["seen"]


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not_here()), reason=f"no testbed here: {why_not_here()}")
def test_a_cable_is_trained_over_as_lesson_12_says(tmp_path):
    commands = ran("lesson_12")[1]["commands"]
    try:
        typed_in(tmp_path, commands, SCALING_CACHE=str(tmp_path / "cache"))
    finally:
        subprocess.run(
            [sys.executable, "-m", "scaling", "testbed", "down"],
            env=os.environ | {"SCALING_CACHE": str(tmp_path / "cache")},
            check=False, capture_output=True,
        )  # fmt: skip
    steps = [line for line in read_metrics(tmp_path / "runs" / "cable") if "loss" in line]
    assert len(steps) == 20
