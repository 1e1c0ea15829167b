"""The explorer as `scaling learn explorer` serves it: its numbers are those of the command line."""

import json
import os
import shlex
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

import scaling as sc
from scaling.cli.main import main
from scaling.course.explorer.programs import programs
from scaling.profiles.io import profile_of

pytestmark = pytest.mark.browser
DESKTOP, PHONE = (1360, 900), (390, 844)  # pixels
GROUP = "splits of 64 GPUs"
FAMILY = next(g for g in programs({}) if g["group"] == GROUP)["families"][0]
FIRST, SECOND = FAMILY["stops"][:2]
OTHER_GROUP = programs({})[0]["group"]
OTHER = programs({})[0]["families"][0]["stops"][0]
SCREENS = "SCREENSHOTS"  # environment variable: a folder that screenshots go to
WAIT = 20_000.0  # ms, that an answer may take


@contextmanager
def opened(browser, address, query="", size=DESKTOP, scheme="light"):
    """The page, once it shows a step; nothing may go wrong in its console."""
    viewport = {"width": size[0], "height": size[1]}
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    page, errors = context.new_page(), []
    page.set_default_timeout(WAIT)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda text: errors.append(text.text) if text.type == "error" else None)
    page.goto(f"{address}explorer.html{query}")
    page.locator("#results").wait_for()
    yield page
    context.close()
    assert not errors


def seconds(page) -> float:
    return float(page.locator("#seconds").get_attribute("data-seconds"))


def settled(page, action) -> float:
    """Seconds of the step that the page shows after an action has changed it."""
    before = page.locator("#seconds").get_attribute("data-seconds")
    action()
    page.wait_for_function(
        "was => document.getElementById('seconds').dataset.seconds !== was", arg=before
    )
    return seconds(page)


def by_command(page, capsys) -> float:
    """Seconds of the step that the command on the page prints."""
    words = shlex.split(page.locator("#command").text_content())
    assert main([*words[1:], "--json"]) == 0
    return json.loads(capsys.readouterr().out)["step_time"]


def slide(page, name, key, times=1):
    """Move a slider by the keyboard."""
    page.locator(f"#{name}").focus()
    for _ in range(times):
        page.keyboard.press(key)


def test_sliders_give_the_numbers_of_the_command(browser, pages, capsys):
    with opened(browser, pages, f"?program={OTHER['key']}") as page:
        settled(page, lambda: page.select_option("#group", label=GROUP))
        settled(page, lambda: slide(page, "stop", "ArrowRight"))
        assert SECOND["label"] in page.locator("#title").text_content()
        slow = settled(page, lambda: slide(page, "network", "Home"))
        assert "network x0.25" in page.locator("#command").text_content()
        assert slow == by_command(page, capsys)
        assert "as built" in page.locator("#change").text_content()
        back = settled(page, lambda: page.get_by_role("button", name="Reset all").click())
        assert back < slow and back == by_command(page, capsys)


def test_an_address_restores_what_was_chosen(browser, pages):
    query = f"?program={SECOND['key']}&network=0.5&peak=2"
    with opened(browser, pages, query) as page:
        first = seconds(page)
        assert page.locator("#network-value").text_content() == "x0.5"
        assert page.locator("#peak-value").text_content() == "x2"
        assert page.locator("#group option:checked").text_content() == GROUP
        row = page.locator("#collectives tbody tr").nth(2)
        row.locator("button").click()
        page.wait_for_url("**collective=**")
        settled(page, lambda: slide(page, "stop", "ArrowLeft"))
        assert parse_qs(urlsplit(page.url).query)["program"] == [FIRST["key"]]
        assert settled(page, page.go_back) == first
        address = page.url
    with opened(browser, pages, "?" + urlsplit(address).query) as page:
        assert seconds(page) == first
        assert page.locator("#collectives tr[aria-current=true]").count() == 1


def test_a_collective_shows_its_links_and_its_line_of_the_model(browser, pages):
    with opened(browser, pages, f"?program={SECOND['key']}") as page:
        row = page.locator("#collectives tbody tr", has_text="all-gather[fsdp]").first
        size = row.locator("td").nth(1).text_content()
        row.click()
        page.get_by_text(f"all-gather over fsdp, {size} a call").wait_for()
        facts = page.locator("#facts").text_content()
        assert "NVLink of a chip" in facts and "models/" in facts and "named_scope" in facts
        assert "NVLink of a chip: " in page.locator("#picture-cluster svg").text_content()
        assert row.get_attribute("aria-current") == "true"


def test_a_calibration_is_taken_and_a_wrong_one_is_refused(browser, pages, tmp_path, capsys):
    good, bad = tmp_path / "mine.json", tmp_path / "bad.json"
    good.write_text(json.dumps(asdict(profile_of(sc.load_cluster("dgx-a100").accelerator))))
    bad.write_text('{"version": 2}')
    with opened(browser, pages, f"?program={FIRST['key']}") as page:
        own = settled(page, lambda: page.set_input_files("#calibration", good))
        assert "mine.json" in page.locator("#calibrated").text_content()
        where = {key: FIRST[key] for key in ("run", "cluster", "nodes", "mesh")}
        words = shlex.split(page.locator("#command").text_content())
        settings = [w for option, w in zip(words, words[1:], strict=False) if option == "--set"]
        expected = sc.predict(**where, set=settings, source="stored", calibration=good)
        assert own == expected.step_time
        page.set_input_files("#calibration", bad)
        page.locator("#problem").get_by_text("the calibration: missing").wait_for()
        empty = tmp_path / "empty.json"
        empty.touch()
        page.set_input_files("#calibration", empty)
        page.locator("#problem").get_by_text("the calibration is not JSON").wait_for()
        page.get_by_role("button", name="Without it").click()
        page.locator("#problem").wait_for(state="hidden")


def test_the_keyboard_is_enough(browser, pages):
    """From the top of the page by Tab alone: every control in turn, then a collective by Enter."""
    with opened(browser, pages, f"?program={FIRST['key']}") as page:
        seen = []
        for _ in range(60):
            page.keyboard.press("Tab")
            seen.append(
                page.evaluate("document.activeElement.id || document.activeElement.tagName")
            )
            if page.evaluate("!!document.activeElement.closest('#collectives')"):
                break
        controls = ["group", "family", "stop", "nvlink", "network", "reset", "calibration", "look"]
        assert [name for name in seen if name in controls] == controls
        for _ in range(3):
            page.keyboard.press("Tab")
        chosen = page.evaluate("document.activeElement.textContent")
        page.keyboard.press("Enter")
        page.wait_for_url("**collective=**")
        page.get_by_text(chosen.replace("[", " over ").replace("]", ",")).first.wait_for()
        assert page.evaluate("document.activeElement.textContent") == chosen


def test_bad_addresses_get_a_message(browser, pages):
    for query, message in (
        ("program=none", "no program 'none'"),
        (f"program={FIRST['key']}&network=0", "network=0 must be a factor"),
        (f"program={FIRST['key']}&network=fast", "network='fast' must be a factor"),
        (f"program={FIRST['key']}&network=", "network='' must be a factor"),
    ):
        page = browser.new_page()
        page.goto(f"{pages}explorer.html?{query}")
        page.locator("#problem").get_by_text(message).wait_for()
        page.get_by_role("button", name="Reset all").click()
        page.select_option("#group", label=OTHER_GROUP)
        page.locator("#results").wait_for()
        page.locator("#problem").wait_for(state="hidden")
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_can_be_read(browser, pages, tmp_path, scheme, size):
    """No sideways scrolling; axe-core's rules hold; screenshots to look at."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the extra browser")
    query = f"?program={SECOND['key']}&network=0.5"
    with opened(browser, pages, query, size, scheme) as page:
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, f"{wide} pixels too wide"
        found = axe.Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        name = f"explorer_{scheme}_{size[0]}.png"
        page.screenshot(path=Path(os.environ.get(SCREENS, tmp_path)) / name, full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index.html", "quizzes.html"])
def test_the_other_pages_keep_the_rules_of_accessibility(browser, pages, name, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the extra browser")
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{pages}{name}")
    page.wait_for_load_state("networkidle")
    found = axe.Axe().run(page)
    context.close()
    assert found.violations_count == 0, found.generate_report()
