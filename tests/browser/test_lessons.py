"""Lessons and labs in a real browser, on a desktop and on a phone: guess, slide, solve.

Run by `make browser`. Needs Playwright (extra `browser`) and a Chromium: $CHROMIUM, or on the PATH.
"""

import os
from pathlib import Path

import pytest

import scaling as sc
from experiments.screenshots import open_lesson, served_lesson
from scaling.course.lessons.index import labs, lessons
from scaling.course.lessons.parts import OPENS
from scaling.questions.page import show

pytestmark = pytest.mark.browser
DESKTOP, PHONE = (1100, 900), (390, 844)  # pixels
LONGEST_CONTROL = (
    18  # characters of a control, a number, or of "Notifications (F8)", which marimo hides
)
OPEN_TIME = 60.0  # s until a server answers, or a cell has run
SCREENS = "SCREENSHOTS"  # environment variable: a folder that screenshots go to


def opened(browser, address: str, size: tuple[int, int]):
    """The page of a lesson, loaded; a phone is in dark colours."""
    scheme = "dark" if size == PHONE else "light"
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page.set_default_timeout(1000 * OPEN_TIME)
    page.goto(address)
    page.get_by_text("Afterwards you can").wait_for()
    return page


# All text of a page, the insides of marimo's elements and the words of drawings included.
WHOLE_TEXT = """() => {
  const found = [];
  const walk = node => {
    if (node.nodeType === Node.TEXT_NODE) found.push(node.textContent);
    if (["STYLE", "SCRIPT", "NOSCRIPT"].includes(node.nodeName)) return;
    if (node.ariaLabel) found.push(node.ariaLabel);
    if (node.shadowRoot) node.shadowRoot.childNodes.forEach(walk);
    node.childNodes.forEach(walk);
  };
  walk(document.body);
  return found.map(text => text.trim()).filter(text => text);
}"""


def below_the_guess(page) -> list[str]:
    """The texts of a page that stand below the label of its guess."""
    texts = page.evaluate(WHOLE_TEXT)
    label = max(i for i, text in enumerate(texts) if OPENS in text)
    return texts[label + 1 :]


@pytest.mark.parametrize("lesson", [*lessons(), *labs()], ids=lambda one: one.file.stem)
def test_a_guess_opens_a_lesson_on_a_desktop_and_on_a_phone(browser, lesson, tmp_path):
    screens = Path(os.environ.get(SCREENS, tmp_path))
    with served_lesson(lesson.file) as address:
        for name, size in (("desktop", DESKTOP), ("phone", PHONE)):
            page = opened(browser, address, size)
            page.wait_for_timeout(1000)
            before = page.evaluate(WHOLE_TEXT)
            shown = [text for text in below_the_guess(page) if len(text) > LONGEST_CONTROL]
            assert shown == []
            open_lesson(page)
            page.locator("figure[role=img] svg").first.wait_for()
            opens = {text for text in below_the_guess(page) if len(text) > LONGEST_CONTROL}
            assert len(opens) > 10
            assert opens & set(before) <= {page.title()}, "shown before the guess"
            assert page.locator("math").count() or lesson.file.stem.startswith("lab")
            assert page.locator("text=Traceback").count() == 0
            assert page.locator("body.dark").count() == (name == "phone")
            wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, f"{wide} pixels wider than a {name}"
            page.screenshot(path=screens / f"{lesson.file.stem}_{name}.png", full_page=True)
            page.close()


def guess(page, number: str) -> None:
    """Write a number into the first field."""
    field = page.locator("input[inputmode], input[type=number]").first
    field.fill(number)
    field.press("Enter")


def test_a_wrong_guess_is_told_its_mistake_before_the_number(browser):
    """Lesson 1 by the sparse peak: twice the answer of an H100."""
    answer = sc.kernel("matmul", (256, 8192, 8192), accelerator="h100-sxm")["critical batch"].ideal
    with served_lesson(lessons()[0].file) as address:
        page = opened(browser, address, DESKTOP)
        guess(page, f"{2 * answer:.0f}")
        page.get_by_text("sparsity").first.wait_for()
        assert f"{answer:,.0f}" not in " ".join(page.evaluate(WHOLE_TEXT))
        guess(page, f"{answer:.0f}")
        page.get_by_text(f"{2 * answer:,.0f}").first.wait_for()
        page.get_by_text("Take away.").wait_for()


def test_the_page_has_the_number_of_the_command_line(browser):
    """Lesson 1 on an H200, then on an A100: its critical batch is that of `scaling kernel`."""
    with served_lesson(lessons()[0].file) as address:
        page = opened(browser, address, DESKTOP)
        open_lesson(page, "100", "100.5")
        for label, chip in (("H200", "h200-sxm"), ("A100", "a100-sxm-80g")):
            page.locator("select").first.select_option(label=label)
            answer = sc.kernel("matmul", (256, 8192, 8192), accelerator=chip)["critical batch"]
            page.get_by_text(f"it is {show(answer.ideal, 'tokens')}").wait_for()


def test_a_wrong_answer_is_told_its_slip_and_a_right_one_that_it_is_right(browser):
    with served_lesson(lessons()[0].file) as address:
        page = opened(browser, address, DESKTOP)
        open_lesson(page)
        paper = page.locator("input[inputmode], input[type=number]").nth(1)
        right = sc.kernel("matmul", (256, 8192, 8192), accelerator="h100-sxm", weights="int8")
        number = right["critical batch by the weights alone"].ideal
        for value, said in ((2 * number, "too high by a factor of 2"), (number, "Right:")):
            paper.fill(f"{value:.1f}")
            paper.press("Enter")
            page.get_by_text(said).first.wait_for()
