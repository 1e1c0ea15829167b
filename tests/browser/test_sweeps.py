"""The game on measured sweeps in a real browser: what it says is what the command says."""

import json
import re

import pytest

from experiments.screenshots import served_lesson
from scaling.course.lessons.index import labs
from scaling.course.sweeps.game import TRIES, find_problem, play_sweep, sweep
from tests.browser.test_pages import DESKTOP, PHONE, check_accessible, opened, screens  # noqa: F401

pytestmark = pytest.mark.browser
NAME = "3.57B-128-sick"


def attempt(page, row) -> None:
    for name in ("tensor", "stage", "zero", "sequences"):
        page.locator(f"#{name}").select_option(str(getattr(row, name)))
    page.get_by_role("button", name="Try it").click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE, (390, 800)], ids=["desktop", "phone", "narrow"])
def test_five_tries_have_the_verdict_of_the_command(browser, pages, screens, scheme, size):  # noqa: F811
    page = opened(browser, f"{pages}sweeps.html#{NAME}", size, color_scheme=scheme)
    page.locator("#tensor").wait_for()
    problem = next(p for p in sweep().problems if p.name == NAME)
    rows = [r for r in problem.rows if r.seconds is None][:1]
    rows += [r for r in problem.rows if r.seconds not in (None, problem.times[0])][::12][:4]
    assert len(rows) == TRIES
    for row in rows:
        attempt(page, row)
    game = play_sweep(NAME, list(map(str, rows)))
    page.get_by_text(f"Rank {game.rank} of {len(problem.times)} that ran").wait_for()
    text = page.locator("#game").inner_text()
    assert "out of memory" in text and f"{game.luck:.1%} of the time" in text
    for words, other in game.others.items():
        line = page.locator("tr", has_text=words).inner_text()
        assert other.said in line and f"{problem.lost(other):+.1%}" in line
    assert page.get_by_role("button", name="Try it").is_disabled()
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0, f"{wide} pixels too wide"
    check_accessible(page)
    page.screenshot(path=screens / f"sweep_{scheme}_{size[0]}.png", full_page=True)
    page.get_by_role("button", name="Play again").click()
    assert page.locator("#tries li").count() == 0 and page.errors == []
    page.context.close()


def test_it_is_played_with_the_keyboard_alone_and_no_python_is_asked(browser, pages):
    page = opened(browser, f"{pages}sweeps.html#{NAME}")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.locator("#tensor").wait_for()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "try":
            break
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "who types sees where"
    page.keyboard.press("Enter")
    assert page.locator("#tries li").count() == 1
    page.keyboard.press("Enter")
    page.get_by_text("You tried this one").wait_for()
    assert not [url for url in asked if re.search("/ask$", url)]


def test_choices_offer_what_was_run_and_nothing_else(browser, pages):
    page = opened(browser, f"{pages}sweeps.html#{NAME}")
    page.locator("#tensor").wait_for()
    problem = next(p for p in sweep().problems if p.name == NAME)
    page.locator("#tensor").select_option("2")
    offered = page.eval_on_selector_all("#stage option", "all => all.map((one) => one.value)")
    assert offered == [str(s) for s in sorted({r.stage for r in problem.rows if r.tensor == 2})]
    stored = json.loads(page.request.get(f"{pages}sweeps.json").text())
    assert stored["problems"][0]["name"] == sweep().problems[0].name


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_lab_5_is_played_to_its_verdict(browser, screens, size):  # noqa: F811
    problem = find_problem("3.57B-128")
    rows = sorted((r for r in problem.rows if r.seconds), key=lambda r: r.seconds)[1 : TRIES + 1]
    with served_lesson(labs()[4].file) as address:
        page = opened(browser, address, size)
        field = page.locator("input[inputmode], input[type=number]").first
        field.fill(f"{problem.times[-1] / problem.times[0]:.3g}")
        field.press("Enter")
        page.get_by_text("Take away.").wait_for()
        assert page.get_by_text("Compared with others").count() == 0
        for number, row in enumerate(rows, 1):
            page.locator("select").first.select_option(str(row))
            page.get_by_role("button", name="Try it").click()
            page.get_by_text(f"{TRIES - number} of {TRIES} tries left").wait_for()
        page.get_by_role("heading", name="Compared with others").wait_for()
        game = play_sweep(problem.name, list(map(str, rows)))
        page.get_by_text(f"{game.luck:.1%} of the time").wait_for()
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, f"{wide} pixels too wide"
        page.screenshot(path=screens / f"lab_5_{size[0]}.png", full_page=True)
        page.context.close()
