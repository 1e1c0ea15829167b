"""A teacher's pack: blocks without controls, plans of 45 minutes, mistakes with their numbers."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.cli.main import main
from scaling.course.lessons.index import labs, lessons
from scaling.course.quizzes.common_mistakes import mistake
from scaling.course.teaching.blocks import blocks
from scaling.course.teaching.plans import MINUTES, plan, taught
from scaling.meshes.errors import InputError
from scaling.questions.page import show

EVERY = (*lessons(), *labs())


@pytest.mark.parametrize("lesson", EVERY, ids=lambda one: one.file.stem)
def test_every_lesson_and_lab_has_a_plan_that_fills_the_time(lesson):
    own = plan(lesson)
    assert sum(step.minutes for step in own.steps) == MINUTES
    assert len(own.ask) == 2 and all(question.endswith("?") for question in own.ask)
    assert own.board and len(set(own.ask)) == 2
    kind, _, _ = lesson.file.stem.partition("_")
    assert taught(f"{kind} {lesson.number}") == lesson


@pytest.mark.parametrize("words", ["", "0", "99", "lab", "lab 99", "lesson x", "quiz 1", "1 2"])
def test_what_is_not_taught_says_what_is(words):
    with pytest.raises(InputError, match="there are 1 to 13"):
        taught(words)


def test_texts_tables_formulas_and_drawings_are_kept_and_controls_are_not():
    shown = (
        '<div><span class="markdown"><h2 id="why">Why &amp; how</h2>\n<span class="paragraph">a '
        '<code>b &lt; c</code> <a href="https://x.org" target="_blank">d</a></span></span>'
        "<marimo-ui-element><marimo-number data-label='&quot;secret&quot;'></marimo-number>"
        '</marimo-ui-element><figure role="img" aria-label="A line"><svg viewBox="0 0 9 9">'
        '<circle cx="1" cy="2" r="3"/></svg></figure>'
        "<marimo-callout-output data-html='&quot;&#92;u003cspan class=&#92;&quot;paragraph&#92;"
        "&quot;&#92;u003eTake away.&#92;u003c/span&#92;u003e&quot;'></marimo-callout-output></div>"
    )
    found = blocks(shown)
    assert [block.tag for block in found] == ["h2", "p", "figure", "box"]
    html = "".join(block.html for block in found)
    assert "<h2>Why &amp; how</h2>" in html and "<code>b &lt; c</code>" in html
    assert '<svg viewBox="0 0 9 9"><circle cx="1" cy="2" r="3"/></svg>' in html
    assert "secret" not in html and "marimo" not in html and "target" not in html
    assert found[-1].text == "Take away."


@pytest.mark.parametrize(
    "evil",
    [
        "<p><script>alert(1)</script></p>",
        '<p onclick="alert(1)">a</p>',
        '<p><a href="javascript:alert(1)">a</a></p>',
        '<p><img src="x" onerror="alert(1)">a</p>',
        '<figure><svg><script>alert(1)</script><circle onload="alert(1)" r="1"/></svg></figure>',
        '<p style="background:url(http://x)">a</p>',
        "<p><iframe src='http://x'></iframe>a</p>",
    ],
)
def test_nothing_that_runs_or_loads_gets_through(evil):
    html = "".join(block.html for block in blocks(evil))
    assert not re.search(r"<script|onclick|onerror|onload|javascript:|url\(|<img|<iframe", html)


@given(st.text(alphabet="<>/&;\"'ph2figuresvg =a1", max_size=80))
def test_any_text_gives_blocks_whose_tags_are_closed(text):
    for block in blocks(text):
        assert block.html.startswith("<") and block.html.endswith(">")


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    pytest.importorskip("marimo")
    from scaling.course.teaching.material import material
    from scaling.course.teaching.pack import teacher_page
    from scaling.course.teaching.slides import deck, slides

    found = material(taught("lab 5"))
    return found, teacher_page(found), deck(found), slides(found)


def test_the_page_has_the_number_that_each_mistake_gives(packed):
    found, page, _, _ = packed
    for one in (found.asked, *found.problems):
        answer, unit = one.answer
        assert show(answer, unit) in page and one.text in page
        for known in map(mistake, one.mistakes):
            assert all(show(answer * ratio, unit) in page for ratio in known.ratios)
            assert known.sentence in page
    assert found.takeaway and f"To remember: {found.takeaway}" in page
    assert f"{MINUTES - 10} - {MINUTES}" in page and "scaling learn quiz " in page


def test_slides_have_the_question_before_the_answer_and_no_solutions(packed):
    found, _, deck, slides = packed
    titles = [slide.title for slide in slides]
    assert titles.index("Your guess") < titles.index("It is") < titles.index("Problems")
    assert titles[-1] == "Take away" and all(slide.html for slide in slides)
    assert "You guessed" not in deck and "marimo" not in deck
    problems = "".join(slides[titles.index("Problems")].html)
    for one in found.problems:
        assert show(*one.answer) not in problems
    assert deck.count("<section") == len(slides) and "{{" not in deck
    assert not re.search(r'(src|href)="(?!https?://)', deck), "it needs a file beside it"
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", deck)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2", "6", "10"])
def test_slides_derive_the_formula_before_the_answer_and_the_ladder(name):
    pytest.importorskip("marimo")
    from scaling.course.teaching.material import material
    from scaling.course.teaching.slides import slides

    found = slides(material(taught(name)))
    place = [slide.title for slide in found].index("It is")
    before = "".join("".join(slide.html) for slide in found[:place])
    assert "<math" in found[place - 1].html[-1] and "<em>Ladder:</em>" not in before
    assert any("<em>Ladder:</em>" in "".join(slide.html) for slide in found[place:])


def test_a_pack_is_written_to_a_new_folder_only(tmp_path, capsys):
    pytest.importorskip("marimo")
    (tmp_path / "there").touch()
    for words in (["1"], ["1", "--output", str(tmp_path)], ["99", "--output", str(tmp_path / "x")]):
        assert main(["learn", "teach", *words]) == 2
    assert "empty folder" in capsys.readouterr().err and not (tmp_path / "x").exists()
    assert main(["learn", "teach", "lab 5", "--output", str(tmp_path / "x")]) == 0
    names = {file.name for file in (tmp_path / "x" / "lab_5").iterdir()}
    assert names == {"teacher.md", "slides.html"}


@pytest.mark.slow
@pytest.mark.parametrize("lesson", EVERY, ids=lambda one: one.file.stem)
def test_every_lesson_gives_a_pack(lesson):
    pytest.importorskip("marimo")
    from scaling.course.teaching.material import material
    from scaling.course.teaching.pack import teacher_page
    from scaling.course.teaching.slides import deck, slides

    found = material(lesson)
    assert "## Solutions" in teacher_page(found) and found.takeaway
    assert "You guessed" not in deck(found)
    assert all("".join(slide.html).replace("<p></p>", "") for slide in slides(found))
