"""The pages in a real browser: from the server of `scaling learn`, and as a site. `make browser`.

The site is opened from a plain server of files and from the files themselves, without a network.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from experiments.screenshots import open_lesson
from experiments.site.notebooks import open_page, read_page, write_opened
from experiments.site.pages import build_wheel, place_of, write_pages
from experiments.site.runtime import LOCK, hosts_of, take
from experiments.site.stored import asked, write_small, write_steps
from scaling.course.explorer.programs import programs
from scaling.course.lessons.index import lessons
from scaling.course.quizzes.answered import guess_of
from scaling.course.quizzes.common_mistakes import diagnose, mistake
from scaling.course.quizzes.quiz import find, quizzes
from scaling.course.web.ask import one_quiz
from scaling.course.web.pages import WRITTEN
from scaling.course.web.server import PAGES, PageServer
from scaling.meshes.errors import InputError

pytestmark = pytest.mark.browser
DESKTOP, PHONE = (1100, 900), (390, 844)  # pixels
OPEN_TIME = 60.0  # s that a page may take
PYTHON_TIME = 300.0  # s that a browser's Python may take to begin, where others use the cores
SCREENS = "SCREENSHOTS"  # environment variable: a folder that screenshots go to
QUIZ, RIGHT = "gpu-q2.3", "1.044"  # ms
BOTH_DIRECTIONS = mistake("both directions").sentence
ALL = sorted(name for name in WRITTEN if name.endswith(".html"))
GROUP = max(programs({}), key=lambda one: sum(len(f["stops"]) for f in one["families"]))
STEP = GROUP["families"][0]["stops"][0]  # that the explorer begins with


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
    guess(page, "0.52")
    page.get_by_text("Too low, by two to ten times").wait_for()
    assert page.get_by_text(BOTH_DIRECTIONS).is_visible()
    check_accessible(page)
    page.screenshot(path=screens / f"quiz_wrong_{scheme}.png", full_page=True)
    assert page.get_by_text(RIGHT).count() == 0, "shown before the second try"
    guess(page, "0.52")
    page.get_by_text("Too low by a factor of 2.01").wait_for()
    page.get_by_text(RIGHT).first.wait_for()
    assert page.get_by_text("scaling collective all-gather").first.is_visible()
    page.screenshot(path=screens / f"quiz_answer_{scheme}.png", full_page=True)
    guess(page, RIGHT)
    page.get_by_text("Right (").wait_for()
    assert page.locator(".verdict.wrong").count() == 0
    guess(page, "one")
    page.get_by_text("'one' is no number").wait_for()
    assert page.errors == []


def test_a_question_has_an_address_and_the_score_stays(browser, pages):
    page = opened(browser, f"{pages}quizzes.html#{QUIZ}")
    guess(page, RIGHT)
    page.get_by_text("Right (").wait_for()
    count = len(quizzes())
    page.get_by_text(f"1 of {count} right at the last try, 0 wrong").wait_for()
    page.get_by_role("button", name="Next").click()
    page.wait_for_function(f"location.hash !== '#{QUIZ}'")
    assert page.locator(".verdict").count() == 0
    guess_all(page, "-1")
    page.get_by_text(f"1 of {count} right at the last try, 1 wrong").wait_for()
    page.go_back()
    page.locator(f"#list a[href='#{QUIZ}'][aria-current=true] .right").wait_for()
    page.reload()
    page.get_by_role("button", name="Forget my answers").click()
    page.get_by_text("at the last try").wait_for(state="hidden")


def guess_all(page, number: str) -> None:
    for field in page.locator("#fields input").all():
        field.fill(number)
    page.keyboard.press("Enter")


def test_the_answer_can_be_shown_after_a_wrong_guess_alone(browser, pages):
    page = opened(browser, f"{pages}quizzes.html#{QUIZ}")
    page.locator("#fields input").first.wait_for()
    button = page.get_by_role("button", name="Show the answer")
    assert not button.is_visible()
    guess(page, "0.52")
    button.click()
    page.get_by_text(RIGHT).first.wait_for()
    assert not button.is_visible()


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
    guess(page, "0.52")
    page.get_by_text("scaling learn has ended").wait_for()


@pytest.fixture(scope="module")
def runtime(tmp_path_factory) -> Path | None:
    """Python for a browser, as `make pyodide` gets it; None where npm cannot be reached."""
    folder = tmp_path_factory.mktemp("pyodide")
    take(folder)
    return folder if (folder / LOCK).is_file() else None


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory, runtime) -> Path:
    """The site's pages with one quiz and the steps of one slider, without lessons and documents."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "wheel").mkdir()
    write_pages(folder, build_wheel(folder / "wheel"), runtime)
    write_small(folder, [find(QUIZ)])
    write_steps(folder, [STEP["key"]], tmp_path_factory.mktemp("cache"))
    return folder


@pytest.fixture(scope="module")
def served(folder):
    """The address of the site from a plain server of files."""
    handler = partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(params=["file", "http"])
def site(request, folder, served) -> str:
    """The address of the site: opened from files, and from a plain server."""
    return f"{folder.as_uri()}/" if request.param == "file" else served


def offline(browser, address: str, size=DESKTOP):
    """A page without a network but for the site's own server; `asked` is what it asked for."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]})
    page = context.new_page()
    page.asked = []

    def answer(route):
        page.asked.append(route.request.url)
        route.abort()

    context.route(re.compile(r"^https?://(?!127\.0\.0\.1)"), answer)
    page.set_default_timeout(1000 * OPEN_TIME)
    page.goto(address)
    return page


def test_quizzes_need_no_python_and_no_network(browser, site):
    page = offline(browser, f"{site}quizzes.html#{QUIZ}")
    guess(page, "0.52")
    page.get_by_text("Too low, by two to ten times").wait_for()
    assert page.get_by_text(BOTH_DIRECTIONS).is_visible()
    guess(page, RIGHT)
    page.get_by_text("Right (").wait_for()
    assert page.asked == []


def test_the_first_page_has_its_picture_and_finds_words(browser, site):
    page = offline(browser, site + "index.html")
    page.locator("#picture svg").wait_for()
    page.locator("#words").fill("microbatch")
    page.locator("#found a").first.wait_for()
    page.locator("#words").fill("all-gather 4096")
    page.locator(f"#found a[href='quizzes.html#{QUIZ}']").wait_for()
    page.locator("#words").fill("no such word")
    page.get_by_text("Nothing is found").wait_for()
    assert page.asked == []


def test_a_sweep_is_played_without_python_and_network(browser, site):
    page = offline(browser, site + "sweeps.html")
    page.locator("#tensor").wait_for()
    page.get_by_role("button", name="Try it").click()
    page.locator("#tries li").wait_for()
    assert page.asked == []


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_explorer_shows_a_step_and_says_what_a_change_needs(browser, site, folder, size):
    page = offline(browser, site + "explorer.html", size)
    page.locator("#results").wait_for()
    assert float(page.locator("#seconds").get_attribute("data-seconds")) > 0
    assert page.asked == []
    page.locator("#nvlink").focus()
    page.keyboard.press("ArrowLeft")
    if site.startswith("file"):
        page.get_by_text("A browser starts no Python").wait_for()
    elif hosts_of(folder / "pyodide", ("numpy",)):
        missing = "numpy" if (folder / "pyodide" / LOCK).is_file() else "Python"
        page.get_by_text(f"{missing} could not be loaded from https://cdn.jsdelivr.net").wait_for()
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0, f"{wide} pixels too wide"
    assert page.locator("#results").is_visible(), "what was shown stays"


def test_the_site_computes_a_changed_step_by_its_own_python(browser, served, folder):
    """With all wheels beside, a browser without a network prices a step as this Python does."""
    if hosts := hosts_of(folder / "pyodide", ("numpy",)):
        pytest.skip(f"npm or PyPI cannot be reached: numpy for Pyodide is on {hosts[0]} alone")
    begin = time.monotonic()
    page = offline(browser, f"{served}explorer.html?program={STEP['key']}&network=0.5")
    page.locator("#results").wait_for(timeout=1000 * PYTHON_TIME)
    print(f"{time.monotonic() - begin:.1f} s to the first number")
    shown = float(page.locator("#seconds").get_attribute("data-seconds"))
    expected = asked("explorer", program=STEP["key"], network=0.5)["step"]["seconds"]
    assert shown == pytest.approx(expected, rel=1e-9) and page.asked == []


def test_a_lesson_opens_by_the_sites_own_python(browser, served, folder):
    """All its cells run in a browser without a network."""
    if hosts := hosts_of(folder / "pyodide", None):
        pytest.skip(f"npm or PyPI cannot be reached: a lesson loads from {', '.join(hosts)}")
    (wheel,) = (folder / "wheel").glob("*.whl")
    lesson = lessons()[1]  # asks the command line's Python for its numbers
    (folder / "lessons").mkdir(exist_ok=True)
    write_opened(lesson, wheel, folder / "lessons", place_of(folder / "pyodide"))
    page = offline(browser, f"{served}lessons/{lesson.file.stem}.html")
    page.set_default_timeout(1000 * PYTHON_TIME)
    open_lesson(page)
    assert page.asked == [] and page.get_by_text("raised an exception").count() == 0


def test_a_python_that_cannot_be_loaded_is_named(browser, tmp_path, folder):
    """A site without Pyodide's files, and without a network."""
    for name in ("explorer.html", "worker.js", "explorer.js", "ask.js", "texts.js"):
        shutil.copyfile(folder / name, tmp_path / name)
    shutil.copytree(folder / "stored", tmp_path / "stored")
    shutil.copyfile(PAGES / "pyodide.js", tmp_path / "pyodide.js")
    handler = partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        page = offline(browser, f"http://127.0.0.1:{server.server_port}/explorer.html?network=0.5")
        page.get_by_text("Python could not be loaded from https://cdn.jsdelivr.net").wait_for()
        server.shutdown()


def test_a_page_judges_a_guess_as_the_command_line_does(browser, pages):
    """Right, off by each mistake up and down, of another sign, and by nothing that is known."""
    quiz = one_quiz({"id": QUIZ})
    (row,) = quiz["numbers"]
    answer, possible = row["answer"], find(QUIZ).answers[0].mistakes
    factors = [f for one in row["mistakes"] for f in (one["factor"], 1 / one["factor"])]
    factors += [1.0, 1.02, 0.98, 1.031, 5.123, 1 / 7.7, 1234.5, 1e-7, 123456.0, 0.0, -1.0]
    guesses = [answer * factor for factor in factors]
    page = opened(browser, f"{pages}quizzes.html#{QUIZ}")
    script = "([all, row, quiz]) => all.map((one) => judged(one, row, quiz))"
    found = page.evaluate(script, [guesses, row, quiz])
    for guess_, one in zip(guesses, found, strict=True):
        verdict = diagnose(guess_, answer, row["tolerance"], possible)
        assert one["words"].lower() == str(verdict).split("\n")[0]
        assert one["isRight"] == verdict.right
        assert verdict.right or one["hint"].split("Wrong: ")[-1].lower() in verdict.hint.lower()
        assert [m["sentence"] for m in one["found"]] == [m.sentence for m in verdict.mistakes]


@pytest.mark.parametrize(
    "text",
    ["1,040", " 1.04e3 ", "-2", ".5", "0x10", "one", "", "inf", "nan", "1,5", "-1,000,000.5e1",
     "1,0000", "1,000,00", ",5", "1.5,000"],
)  # fmt: skip
def test_a_page_reads_a_number_as_the_command_line_does(browser, pages, text):
    page = opened(browser, f"{pages}quizzes.html")
    page.evaluate("text => { try { out = number(text) } catch (e) { out = null } }", text)
    try:
        expected = guess_of(text)
    except InputError:
        expected = None
    assert page.evaluate("out") == expected


@pytest.fixture(scope="module")
def lesson_pages(folder, tmp_path_factory) -> Path:
    """The page of a run beside a page that opens, as a site without Pyodide has them."""
    (folder / "lessons").mkdir(exist_ok=True)
    lesson = lessons()[9]
    command = [sys.executable, "-m", "experiments.site.read", str(lesson.file)]
    cells = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    text = read_page(lesson, cells, place_of(None))
    (folder / "lessons" / "a_read.html").write_text(text)
    opens = tmp_path_factory.mktemp("site_without_pyodide") / "a.html"
    opens.write_text("<html><head></head><body><marimo-wasm></marimo-wasm></body></html>")
    open_page(opens, place_of(None))
    shutil.move(opens, folder / "lessons" / "a.html")
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_page_of_a_run_is_read_from_a_file(browser, lesson_pages, screens, scheme, size):
    address = (lesson_pages / "lessons" / "a_read.html").as_uri()
    page = opened(browser, address, size, color_scheme=scheme)
    page.get_by_text("Take away.").wait_for()
    assert page.locator("figure svg").count() and page.locator("math").count()
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0, f"{wide} pixels too wide"
    check_accessible(page)
    page.screenshot(path=screens / f"read_{scheme}_{size[0]}.png", full_page=True)
    page.get_by_role("link", name="Lessons").click()
    page.wait_for_url("**/lessons.html")
    page.context.close()


def test_a_lesson_that_cannot_be_opened_leads_to_the_page_of_its_run(browser, lesson_pages, site):
    page = offline(browser, f"{site}lessons/a.html", PHONE)
    page.get_by_role("link", name="Read the page of a run instead").click()
    page.wait_for_url("**/a_read.html")


def test_words_and_pictures_do_not_collide(browser, folder):
    """In every picture of a step: no two words overlap, none leaves its picture."""
    page = opened(browser, f"{folder.as_uri()}/explorer.html")
    page.locator("#results").wait_for()
    assert page.evaluate(COLLISIONS) == []


COLLISIONS = """() => [...document.querySelectorAll("#results svg")].flatMap((svg) => {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")]
    .map((text) => [text.textContent, text.getBoundingClientRect()]);
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  const outside = texts.filter(([, r]) => r.left < frame.left - 1 || r.right > frame.right + 1);
  const pairs = texts.flatMap(([word, r], i) =>
    texts.slice(i + 1).filter(([, o]) => over(r, o)).map(([other]) => [word, other]));
  return [...outside.map(([w]) => w), ...pairs];
})"""
