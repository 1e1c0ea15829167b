"""The pages in a real browser: from the server of `scaling learn`, and as a site. `make browser`.

The site's Python is Pyodide, whose runtime npm has: its files are given to the browser where it
asks the CDN. numpy's build for Pyodide is not there, so that only quizzes are tried.
"""

import os
import re
import shutil
import subprocess
import tarfile
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from experiments.site.pages import build_wheel, write_answers, write_pages
from scaling.course.quizzes.quiz import find
from scaling.course.web.server import PAGES, PageServer
from scaling.course.web.texts import WRITTEN

pytestmark = pytest.mark.browser
DESKTOP, PHONE = (1100, 900), (400, 800)  # pixels
OPEN_TIME = 60.0  # s that a page may take
SCREENS = "SCREENSHOTS"  # environment variable: a folder that screenshots go to
QUIZ, RIGHT = "gpu-q2.3", "1.044"  # ms
PYODIDE = re.search(r'"(https://.*/v([\d.]+)/full/)"', (PAGES / "pyodide.js").read_text())
ALL = sorted({*(file.name for file in PAGES.glob("*.html")), *WRITTEN})


@pytest.fixture
def screens(tmp_path) -> Path:
    return Path(os.environ.get(SCREENS, tmp_path))


def opened(browser, address, size=DESKTOP, **settings):
    """A page; `errors` are those of its scripts."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **settings)
    page = context.new_page()
    page.set_default_timeout(1000 * OPEN_TIME)
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.goto(address)
    return page


def guess(page, number: str) -> None:
    page.locator("#fields input").first.fill(number)
    page.keyboard.press("Enter")


def check_accessible(page) -> None:
    """The rules of axe-core, contrast among them, where the extra `browser` has brought it."""
    with suppress(ImportError):
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_page_fits_its_width_and_follows_light_and_dark(
    browser, pages, screens, name, scheme, size
):
    page = opened(browser, pages + name, size, color_scheme=scheme)
    page.locator("h1").first.wait_for()
    page.wait_for_load_state("networkidle")
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0, f"{wide} pixels too wide"
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", ground)[0]) < 128) == (scheme == "dark")
    check_accessible(page)
    page.screenshot(path=screens / f"page_{name.split('.')[0]}_{scheme}_{size[0]}.png")
    assert page.errors == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_wrong_guess_is_told_its_slips_and_a_right_one_that_it_is_right(
    browser, pages, screens, scheme
):
    page = opened(browser, f"{pages}quizzes.html#{QUIZ}", color_scheme=scheme)
    guess(page, "2.1")
    page.get_by_text("Off by a factor of 2.01").wait_for()
    assert page.get_by_text("two directions").is_visible()
    assert page.get_by_text("scaling collective all-gather").first.is_visible()
    check_accessible(page)
    page.screenshot(path=screens / f"quiz_wrong_{scheme}.png", full_page=True)
    guess(page, RIGHT)
    page.get_by_text("Right (").wait_for()
    assert page.locator(".wrong").count() == 0
    guess(page, "one")
    page.get_by_text("'one' is no number").wait_for()
    assert page.errors == []


def test_a_question_has_an_address_and_marks_stay(browser, pages):
    page = opened(browser, f"{pages}quizzes.html#{QUIZ}")
    guess(page, RIGHT)
    page.get_by_text("Right (").wait_for()
    page.get_by_role("button", name="Next").click()
    page.wait_for_function(f"location.hash !== '#{QUIZ}'")
    assert page.locator(".verdict").count() == 0
    page.go_back()
    page.locator("#chooser option:checked", has_text=f"\u2713 quiz 2 Q3 ({QUIZ})").wait_for(
        state="attached"
    )


def test_a_quiz_is_answered_with_the_keyboard_alone(browser, pages):
    page = opened(browser, f"{pages}quizzes.html#{QUIZ}")
    page.locator("#fields input").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#fields input')"):
            break
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "who types sees where"
    page.keyboard.type("2.1")
    page.keyboard.press("Enter")
    page.locator(".verdict.wrong").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Check"


def test_a_server_that_has_ended_is_named(browser):
    with PageServer() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        page = opened(browser, f"{server.address}quizzes.html#{QUIZ}")
        page.locator("#fields input").first.wait_for()
        server.shutdown()
    guess(page, "2.1")
    page.get_by_text("scaling learn has ended").wait_for()


@pytest.fixture(scope="module")
def runtime(tmp_path_factory) -> Path:
    """Files of Pyodide's runtime, from npm."""
    folder, version = tmp_path_factory.mktemp("pyodide"), PYODIDE[2]
    if shutil.which("npm") is None:
        pytest.skip("npm brings Pyodide's runtime")
    command = ["npm", "pack", f"pyodide@{version}"]
    if subprocess.run(command, cwd=folder, capture_output=True).returncode:
        pytest.skip(f"npm has no pyodide@{version} here")
    with tarfile.open(folder / f"pyodide-{version}.tgz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the site's pages, without lessons and documents."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "wheel").mkdir()
    write_pages(folder, build_wheel(folder / "wheel"))
    write_answers(folder, [find(QUIZ)])
    handler = partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def visited(browser, address: str, answer):
    """A page of the site; `answer` handles what it asks of other hosts."""
    context = browser.new_context()
    context.route(lambda url: not url.startswith(address.rpartition("/")[0]), answer)
    page = context.new_page()
    page.set_default_timeout(1000 * OPEN_TIME)
    page.goto(address)
    return page


def from_npm(runtime: Path, asked: list[str]):
    """What handles a request: with a file of the runtime, else as if there were no network."""

    def answer(route):
        asked.append(route.request.url)
        file = runtime / route.request.url.removeprefix(PYODIDE[1])
        route.fulfill(path=file) if file.is_file() else route.abort()

    return answer


def test_the_site_answers_a_quiz_by_a_python_in_the_browser(browser, site, runtime):
    asked = []
    page = visited(browser, f"{site}quizzes.html#{QUIZ}", from_npm(runtime, asked))
    page.get_by_text("Loading Python").wait_for()
    guess(page, "2.1")
    page.get_by_text("Off by a factor of 2.01").wait_for()
    assert page.get_by_text("two directions").is_visible()
    page.get_by_text("Loading Python").wait_for(state="hidden")
    assert asked and not [url for url in asked if not url.startswith(PYODIDE[1])]
    page.evaluate(
        "import('./ask.js').then(m => m.ask('quiz', {id: 'x'})).catch(e => { said = e.message })"
    )
    page.wait_for_function("globalThis.said")
    assert "no quiz is called" in page.evaluate("globalThis.said")


def test_the_site_says_when_numpy_is_missing(browser, site, runtime):
    """So far the explorer comes with what npm has: it asks the CDN for the numpy of its list."""
    asked = []
    page = visited(browser, f"{site}explorer.html", from_npm(runtime, asked))
    page.get_by_text("numpy could not be loaded from").wait_for()
    assert re.fullmatch(re.escape(PYODIDE[1]) + r"numpy-[\d.]+-.*wasm32\.whl", asked[-1])


def test_a_site_without_a_network_says_what_is_missing(browser, site):
    page = visited(browser, f"{site}quizzes.html#{QUIZ}", lambda route: route.abort())
    page.get_by_text("Python could not be loaded from").wait_for()
