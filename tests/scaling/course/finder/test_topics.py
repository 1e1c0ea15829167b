"""The index of the guide: what it names is there, and its commands run."""

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.cli.main import main, parse
from scaling.course.finder.topics import SHOWN, find, topics
from scaling.course.lessons.index import lessons
from scaling.course.quizzes.quiz import CHAPTERS, quizzes
from scaling.meshes.errors import InputError

DOCS = Path(__file__).parents[4] / "docs"
LINES = [line.partition(" :: ")[0] for t in topics() for line in (*t.commands, *t.others)]
CLASSES = re.findall(r"^\|[^|]*\| `scaling (.*?)` \|", (DOCS / "questions.md").read_text(), re.M)
FAST = ("chip", "count", "cluster", "array")  # commands that take a tenth of a second


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def test_every_chapter_and_every_quiz_and_every_lesson_is_found():
    assert {topic.chapter for topic in topics()} == set(CHAPTERS)
    assert {id for topic in topics() for id in topic.quizzes} == {quiz.id for quiz in quizzes()}
    assert {n for topic in topics() for n in topic.lessons} == {one.number for one in lessons()}


def test_pages_and_headings_are_there():
    for page, _, heading in (doc.partition("#") for topic in topics() for doc in topic.docs):
        assert (DOCS / page).is_file(), page
        assert not heading or heading in anchors(DOCS / page), heading


@pytest.mark.parametrize("topic", topics(), ids=lambda topic: topic.title)
def test_a_topic_is_the_first_that_its_title_finds_and_among_those_of_its_words(topic):
    assert find(topic.title).topics[0] == find(topic.section).topics[0] == topic
    for word in (*topic.words, *topic.symbols):
        assert topic in find(word).topics


@pytest.mark.parametrize("quiz", quizzes(), ids=lambda quiz: quiz.id)
def test_a_quiz_is_found_by_where_the_guide_has_it(quiz):
    named = quiz.section.partition(": ")[2]
    assert any(quiz.id in topic.quizzes for topic in find(named).topics)


@pytest.mark.parametrize("word", ["all-gather", "tensor parallelism", "KV cache"])
def test_words_with_and_without_a_hyphen_are_the_same(word):
    plain, joined = word.replace("-", " "), word.replace(" ", "-")
    assert find(plain).topics[0] == find(joined).topics[0] == find(word).topics[0]


@pytest.mark.parametrize("line", dict.fromkeys([*LINES, *CLASSES]))
def test_every_command_is_one(line):
    assert parse(shlex.split(line)) is not None


@pytest.mark.parametrize(
    "topic", [t for t in topics() if all(c.startswith(FAST) for c in t.commands)][:8], ids=str
)
def test_examples_are_computed_when_they_are_shown(topic):
    page = str(find(topic.title))
    assert page.startswith(topic.title)
    assert all(f"$ scaling {line.partition(' :: ')[0]}\n" in page for line in topic.commands)


@pytest.mark.slow
@pytest.mark.parametrize("line", dict.fromkeys([*LINES, *CLASSES]))
def test_every_command_runs(line, capsys):
    assert main(shlex.split(line)) == 0
    assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("topic", topics(), ids=lambda topic: topic.title)
def test_every_topic_shows_its_numbers(topic):
    assert re.search(r"\d", str(find(topic.title, is_whole=True)))


def test_a_page_shows_the_best_and_names_the_rest():
    found = find("MFU")
    assert len(found.topics) > SHOWN
    page = str(found)
    assert all(topic.title in page for topic in found.topics[:SHOWN])
    assert re.search(r"\d more by --all: ", page.splitlines()[-1])


@given(word=st.text(st.characters(categories=["Lu", "Ll"]), min_size=12, max_size=20))
@settings(max_examples=8, deadline=None)
def test_what_the_guide_has_not_is_an_error_with_what_is_near(word):
    with pytest.raises(InputError, match="the index has no"):
        find(word)


def test_nothing_to_find_is_an_error():
    with pytest.raises(InputError, match="write a word"):
        find(" ")
