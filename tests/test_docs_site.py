"""The pages of docs/ as a site: all are reached, all links lead somewhere, all names are there.

What Sphinx says of them is tested where it is installed (extra `docs`), in the long tier.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import scaling
from experiments.figures import rooms

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*") if p.suffix in (".md", ".rst"))
COSTS = [p for p in PAGES if p.parent.name == "costs" and p.stem != "index"]
LINK = re.compile(r"\]\(([^()\s]+)\)")
TOCTREE = re.compile(r"^:::\{toctree\}\n(.*?)^:::$", re.MULTILINE | re.DOTALL)
LOADED = re.compile(r"""(?:src=|<link[^>]*href=|@import |url\()\s*["']?(?:https?:)?//""")
NEEDS_SPHINX = "needs the extra docs: pip install '.[docs]'"


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).with_suffix("").as_posix()


def entries(page: Path) -> list[str]:
    """The pages that the toctrees of a page name, from docs/ on."""
    listed = [tree.split("\n") for tree in TOCTREE.findall(page.read_text(encoding="utf-8"))]
    names = [line for lines in listed for line in lines if line and not line.startswith(":")]
    return [(page.parent / name).relative_to(DOCS).as_posix() for name in names]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, made as GitHub and MyST make them."""
    found = re.findall(r"^#{1,3} (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


def test_every_page_is_in_one_toctree():
    listed = [name for page in PAGES if page.suffix == ".md" for name in entries(page)]
    assert sorted(listed) == sorted(set(map(name_of, PAGES)) - {"index"})


def test_every_public_name_is_in_the_reference():
    words = (DOCS / "api.rst").read_text()
    described = re.findall(r"^\.\. auto\w+:: scaling\.((?:learn\.)?\w+)$", words, re.MULTILINE)
    of_learn = [f"learn.{name}" for name in scaling.learn.__all__]
    assert sorted(described) == sorted([*scaling.__all__, *of_learn])


@pytest.mark.parametrize("page", COSTS, ids=name_of)
def test_a_cost_model_says_what_is_asked_how_well_it_does_and_where_it_is_wrong(page):
    text = page.read_text(encoding="utf-8")
    parts = ("\n## How well it does\n", "\n## Where it is wrong\n", "\nIn the code: ")
    assert all(part in text for part in parts)
    assert text.splitlines()[2].endswith("?")


def test_links_lead_to_headings_that_are_there():
    wrong = []
    for page in (p for p in PAGES if p.suffix == ".md"):
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            other = (page.parent / path) if path else page
            if "://" in target or not anchor or other.suffix != ".md":
                continue
            if anchor not in anchors(other):
                wrong.append(f"{name_of(page)}: {target}")
    assert not wrong


@pytest.mark.slow
def test_sphinx_builds_the_pages_without_a_warning_and_they_load_nothing_else(tmp_path):
    pytest.importorskip("sphinx", reason=NEEDS_SPHINX)
    words = ["-W", "--keep-going", "-q", "-b", "html", "-d", tmp_path / "trees", DOCS]
    command = [sys.executable, "-m", "sphinx", *words, tmp_path / "html"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    for file in (tmp_path / "html").rglob("*"):
        if file.suffix in (".html", ".css"):
            assert not LOADED.search(file.read_text(encoding="utf-8")), file
    search = (tmp_path / "html" / "search.html").read_text(encoding="utf-8")
    options, quotes = (
        search.index("documentation_options.js"),
        search.index("SEARCH_SUMMARY = false"),
    )
    assert options < quotes < search.index("searchtools.js"), "opened from files it fetches nothing"
    index = (tmp_path / "html" / "searchindex.js").read_text(encoding="utf-8")  # a script, no fetch
    assert all(f'"{name_of(page)}"' in index for page in PAGES)


def test_the_drawing_of_the_house_is_that_of_the_table():
    """After a change of ROOMS: python -m experiments.figures rooms"""
    drawn = (DOCS / "images" / "rooms.svg").read_text(encoding="utf-8")
    assert drawn == rooms.drawing(), "run: python -m experiments.figures rooms"
