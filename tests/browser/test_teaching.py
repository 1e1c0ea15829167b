"""A class in real browsers: guesses come in, the teacher shows them; slides turn by keys."""

import re
from threading import Thread

import pytest

from scaling.course.teaching.class_page import Question, Room, RoomServer
from tests.browser.test_pages import DESKTOP, PHONE, check_accessible, opened, screens  # noqa: F401

pytestmark = pytest.mark.browser
GUESSES = {"100": "", "1,900": "", "210": "both directions", "50": "both directions", "98": ""}


@pytest.fixture
def server():
    room = Room(Question("From which batch?", "tokens", 100.0, ("both directions",)))
    with RoomServer(room, 0, "127.0.0.1") as found:
        Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_guesses_of_phones_come_in_and_the_teacher_shows_them(browser, server, screens, scheme):  # noqa: F811
    address = f"http://127.0.0.1:{server.server_port}"
    for number in GUESSES:
        page = opened(browser, f"{address}/", (390, 800), color_scheme=scheme)
        page.get_by_label("One number, in tokens").fill(number)
        page.keyboard.press("Enter")
        page.get_by_text(f"Your guess is in: {number}").wait_for()
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0 and page.errors == []
        check_accessible(page)
        page.context.close()
    page = opened(browser, f"{address}{server.secret}", DESKTOP, color_scheme=scheme)
    page.get_by_text(f"{len(GUESSES)} guesses, in the middle 100 tokens").wait_for()
    page.get_by_role("link", name="Show the answer").click()
    page.get_by_role("heading", name="It is 100 tokens").wait_for()
    assert page.get_by_text("2: right").is_visible()
    check_accessible(page)
    page.screenshot(path=screens / f"class_{scheme}.png", full_page=True)
    page.context.close()


def test_a_wrong_word_is_told_and_a_second_guess_replaces_the_first(browser, server):
    page = opened(browser, f"http://127.0.0.1:{server.server_port}/", PHONE)
    for words, said in (("many", "write one number"), ("7", "in: 7"), ("8", "in: 8")):
        page.get_by_label("One number").fill(words)
        page.get_by_role("button", name="Send").click()
        page.get_by_text(said).wait_for()
    assert server.room.values == [8]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_slides_turn_by_keys_and_fit_the_screen(browser, tmp_path, screens, scheme):  # noqa: F811
    pytest.importorskip("marimo")
    from scaling.course.teaching.pack import write
    from scaling.course.teaching.plans import taught

    write([taught("1")], tmp_path / "pack")
    file = tmp_path / "pack" / "lesson_01" / "slides.html"
    page = opened(browser, file.as_uri(), (1280, 720), color_scheme=scheme)
    count = page.locator("section").count()
    for number in range(1, count + 1):
        page.get_by_text(f"{number} / {count}").wait_for()
        assert page.locator("section:visible").count() == 1
        tall = page.evaluate("document.documentElement.scrollHeight - window.innerHeight")
        assert tall <= 0, f"slide {number} is {tall} pixels too tall"
        check_accessible(page)
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    page.get_by_text(f"1 / {count}").wait_for()
    page.get_by_role("button", name="On").click()
    assert re.search("#2$", page.url) and page.errors == []
    page.screenshot(path=screens / f"slides_{scheme}.png")
    page.context.close()
