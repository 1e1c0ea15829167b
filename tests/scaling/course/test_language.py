"""The course in Korean: nothing missing, nothing stale, and no number that differs from English."""

import ast
import importlib.util
import re
from collections import Counter
from html import unescape

import pytest

from experiments import messages
from scaling.cli.main import main
from scaling.course.language import VARIABLE, catalogue, entries, language, speaking, t
from scaling.course.lessons.index import Lesson, labs, lessons
from scaling.course.lessons.translated import texts, translated
from scaling.course.puzzles.puzzle import puzzles
from scaling.course.quizzes.quiz import quizzes
from scaling.meshes.errors import InputError

NOTEBOOKS = [*lessons(), *labs()]
KOREAN = catalogue("ko")
FIELD = re.compile(r"(?<!\{)\{(?!\{)[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def kept(text: str) -> list[Counter[str]]:
    """What a translation keeps: fields, code, places that links lead to, and numbers."""
    rest = FIELD.sub(" ", text)
    code = re.findall(r"`+[^`]*`+|</?\w[^>]*>", rest)
    links = re.findall(r"\]\([^)]*\)", rest)
    return [*map(Counter, (FIELD.findall(text), code, links, NUMBER.findall(rest)))]


def by_stem(lesson: Lesson) -> str:
    return lesson.file.stem


def test_every_text_has_a_translation_and_none_is_stale():
    assert messages.CATALOGUE.read_text(encoding="utf-8") == messages.written(dict(KOREAN)), (
        "run python -m experiments.messages, then translate the texts that have no msgstr"
    )
    assert [text for text in messages.required() if text not in KOREAN] == []


def test_no_number_differs_between_languages():
    differ = {text: kept(text) for text, korean in KOREAN.items() if kept(text) != kept(korean)}
    assert not differ


def test_the_korean_index_lists_all_of_the_course():
    page = (messages.ROOT / "docs" / "ko.md").read_text(encoding="utf-8")
    with speaking("ko"):
        rows = [f"| {one.number} | {t(one.title)} |" for one in (*lessons(), *labs(), *puzzles())]
    chapters = Counter(quiz.chapter for quiz in quizzes())
    rows += [f"(`{chapter}`) | {count} |" for chapter, count in chapters.items()]
    assert [row for row in rows if row not in page] == []


def test_what_differs_is_found():
    assert kept("{n:,} of 12 GB, `--a`") == kept("`--a`, 12 GB 중 {n:,}")
    for other in ("{n} of 12 GB, `--a`", "{n:,} of 13 GB, `--a`", "{n:,} of 12 GB, `--b`"):
        assert kept("{n:,} of 12 GB, `--a`") != kept(other)


def test_spaces_at_the_ends_stay():
    ends = lambda text: (text[:1].isspace(), text[-1:].isspace())
    assert [text for text, korean in KOREAN.items() if ends(text) != ends(korean)] == []


@pytest.mark.parametrize("lesson", NOTEBOOKS, ids=by_stem)
def test_a_translated_notebook_has_the_same_code(lesson):
    """All but its strings, and the same fields in these."""
    source = lesson.file.read_text(encoding="utf-8")
    assert translated(source, {}) == source
    assert code_of(translated(source, KOREAN)) == code_of(source)
    everything = {text: f"가 {text}" for text in texts(source)}
    assert code_of(translated(source, everything)) == code_of(source)


def code_of(source: str) -> str:
    class Blank(ast.NodeTransformer):
        def visit_Constant(self, node):
            return ast.Constant("") if isinstance(node.value, str) else node

        def visit_JoinedStr(self, node):
            fields = [
                self.generic_visit(v) for v in node.values if isinstance(v, ast.FormattedValue)
            ]
            return ast.JoinedStr(sorted(fields, key=ast.dump))

    return ast.dump(Blank().visit(ast.parse(source)))


def test_what_is_looked_up_by_name_stays():
    source = (
        'rows = {"a step": 1, "no name": 2}\n'
        'f"{rows[\'a step\']:,} of {n} GB", answer["peak rate"], parts.stored("in a node")\n'
    )
    told = {"a step": "A", "no name": "B", "peak rate": "C", "in a node": "D"}
    korean = translated(source, told)
    assert korean == source.replace("no name", "B")
    assert texts(source) == ["a step", "no name", "{rows['a step']:,} of {n} GB"]


def test_long_texts_are_broken_between_words_only():
    text = "단어 " * 40 + "{n / 2:,} 끝"
    korean = translated('print(f"{n / 2:,} long words")', {"{n / 2:,} long words": text})
    assert max(map(len, korean.splitlines())) < 100
    said: list[str] = []
    exec(korean, {"n": 4096, "print": said.append})
    assert said == ["단어 " * 40 + "2,048.0 끝"]


def test_a_language_is_that_of_the_block_else_of_the_environment(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert language() == "en" and t("Detective") == "Detective"
    with speaking("ko"):
        assert t("Detective") == "탐정" and t("no such {n}", n=1) == "no such 1"
    monkeypatch.setenv(VARIABLE, "ko")
    assert t("Detective") == "탐정"
    with speaking("en"):
        assert t("Detective") == "Detective"
    monkeypatch.setenv(VARIABLE, "kr")
    with pytest.raises(InputError, match="SCALING_LANG='kr'"):
        language()


def test_a_catalogue_is_read_as_it_is_written():
    korean = {'a "b"\nc\\d': "가\t나\n", "e": "라"}
    blocks = [
        f"msgid {messages._lines(a)}\nmsgstr {messages._lines(b)}\n" for a, b in korean.items()
    ]
    assert entries("\n".join([messages.HEAD, *blocks, 'msgid "f"\nmsgstr ""\n'])) == korean


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "두 번의 측정, 두 개의 미지수"),
        (["puzzles"], "파이프라인 채우기"),
        (["puzzle", "5"], "마이크로배치"),
        (["quiz", "gpu-q2.3"], "안내서의 측정값"),
    ],
)
def test_the_command_speaks_korean(capsys, words, said):
    assert main(["learn", *words, "--lang", "ko"]) == 0
    assert said in capsys.readouterr().out
    assert main(["learn", *words, "--lang", "en"]) == 0
    assert said not in capsys.readouterr().out


def test_an_unknown_language_is_named(capsys):
    assert main(["learn", "--lang", "fr"]) == 2
    assert "'fr' is no language of the course; write en or ko" in capsys.readouterr().err


def shown_numbers(lesson: Lesson, spoken: str, folder) -> Counter[str]:
    """Numbers of all that a notebook shows in a language."""
    with speaking(spoken):
        file = folder / f"{lesson.file.stem}_{spoken}.py"
        file.write_text(lesson.source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        outputs, _ = module.app.run()
    html = "\n".join(str(getattr(output, "text", "")) for output in outputs if output is not None)
    html = re.sub(r"random-id='[^']*'|object-id='[^']*'", "", html)
    return Counter(NUMBER.findall(re.sub(r"<[^>]*>", " ", unescape(html))))


@pytest.mark.slow
@pytest.mark.parametrize("lesson", NOTEBOOKS, ids=by_stem)
def test_a_lesson_shows_the_same_numbers_in_korean(lesson, tmp_path):
    pytest.importorskip("marimo", reason="lessons are marimo notebooks")
    english = shown_numbers(lesson, "en", tmp_path)
    assert english and shown_numbers(lesson, "ko", tmp_path) == english
