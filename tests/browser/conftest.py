"""What every browser test needs: a Chromium, and the pages as `scaling learn` serves them.

Needs Playwright (extra `browser`) and a Chromium: $CHROMIUM, or one on the PATH.
"""

import os
import shutil
from threading import Thread

import pytest

CHROMIUM = (
    os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
)


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install '.[browser]'")
    if CHROMIUM is None:
        pytest.skip("no Chromium: install Debian's chromium, or set CHROMIUM")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def pages():
    """The address of the pages' server, which ends with the tests."""
    from scaling.course.web.server import PageServer

    with PageServer() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.address
        server.shutdown()
