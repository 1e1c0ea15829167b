"""Six pages of `scaling learn`, as pictures in docs/images (`make screenshots`).

    python -m experiments.screenshots                     all of them
    python -m experiments.screenshots quizzes lesson_5    some

Needs Playwright and marimo (extras `browser` and `lessons`) and a Chromium: $CHROMIUM, or one on
the PATH. Pages are served on the loopback address, as `scaling learn` does. In a lesson a guess is
given first: the rest opens with it.
"""

import argparse
import io
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

from scaling.course.lessons.index import LOOPBACK, numbered
from scaling.course.web.server import PageServer

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
SIZE = (1100, 900)  # pixels of the window
OPEN_TIME = 120.0  # s until a server answers, or a page is there
SETTLED = 1500.0  # ms, for what moves into its place
MOST = 150_000  # bytes of a picture
COLOURS = (256, 128, 64, 32)  # of a picture: the most with which it is small enough
QUIZ = "gpu-q2.3"
LESSONS = ("1", "5", "9")


def explorer(page: Any, address: str) -> None:
    """The explorer with its first step."""
    page.goto(f"{address}explorer.html")
    page.locator("#results").wait_for()


def quizzes(page: Any, address: str) -> None:
    """The quizzes, one of them with a wrong guess."""
    page.goto(f"{address}quizzes.html#{QUIZ}")
    field = page.locator("#fields input").first
    field.fill("2.1")
    field.press("Enter")


def index(page: Any, address: str) -> None:
    """The first page, with its picture."""
    page.goto(address)
    page.locator("#picture svg").wait_for()


def notebook(page: Any, address: str) -> None:
    """A lesson after its guess, from its first drawing on."""
    page.goto(address)
    page.get_by_text("Afterwards you can").wait_for()
    page.wait_for_timeout(SETTLED)
    open_lesson(page)
    figure = page.locator("figure[role=img] svg").first
    figure.wait_for()
    figure.evaluate("drawing => drawing.scrollIntoView({block: 'center'})")


def open_lesson(page: Any, *guesses: str) -> None:
    """Write two guesses, the second when the first was said to be wrong; the lesson then opens."""
    wrong, last = guesses or ("2", "3")
    field = page.locator("input[inputmode], input[type=number]").first
    field.fill(wrong)
    field.press("Enter")
    ends, again = page.get_by_text("Take away."), page.get_by_text("Write a second guess")
    ends.or_(again).first.wait_for()
    if again.is_visible():
        field.fill(last)
        field.press("Enter")
        ends.wait_for()


PAGES: dict[str, Callable[[Any, str], None]] = {
    "explorer": explorer,
    "quizzes": quizzes,
    "index": index,
}
NAMES = (*PAGES, *(f"lesson_{number}" for number in LESSONS))


@contextmanager
def served_pages() -> Iterator[str]:
    """The address of the pages' server, which ends with the block."""
    with PageServer() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.address
        server.shutdown()


@contextmanager
def served_lesson(file: Path) -> Iterator[str]:
    """The address of the server of a lesson's notebook, which ends with the block."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = probe.getsockname()[1]
    where = ["--host", LOOPBACK, "--port", str(port), "--headless", "--no-token"]
    command = [sys.executable, "-m", "marimo", "run", str(file), *where]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address, end = f"http://{LOOPBACK}:{port}", time.monotonic() + OPEN_TIME
    try:
        while time.monotonic() < end:
            with suppress(OSError), urlopen(address, timeout=1):
                break
            time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.wait()


def take(browser: Any, name: str, path: Path) -> None:
    """Open a page and write its picture."""
    show = PAGES.get(name, notebook)
    is_page = name in PAGES
    with (
        served_pages() if is_page else served_lesson(numbered(*name.split("_")[:2]).file) as address
    ):
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        page.set_default_timeout(1000 * OPEN_TIME)
        show(page, address)
        page.wait_for_timeout(SETTLED)
        path.write_bytes(smaller(page.screenshot()))
        page.close()


def smaller(png: bytes) -> bytes:
    """The picture in as many colours as let it stay below MOST bytes."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as picture:
        for colours in COLOURS:
            out = io.BytesIO()
            picture.convert("RGB").quantize(colours).save(out, "PNG", optimize=True)
            if out.tell() <= MOST:
                break
    return out.getvalue()


def main(arguments: list[str] | None = None) -> None:
    """Take the pictures that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m experiments.screenshots", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder")
    given = parser.parse_args(arguments)
    for name in given.names:
        if name not in NAMES:
            parser.error(f"no page {name!r}; there are {', '.join(NAMES)}")
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chrome")
    if program is None:
        parser.error("no Chromium: install Debian's chromium, or set CHROMIUM")
    given.out.mkdir(parents=True, exist_ok=True)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name in given.names or NAMES:
            path = given.out / f"page_{name}.png"
            take(browser, name, path)
            print(f"{path}: {path.stat().st_size:,} bytes", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
