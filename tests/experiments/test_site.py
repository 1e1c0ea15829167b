"""The static site: its pages, its check of links, and the whole of it (slow tier)."""

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from experiments.site.check import broken_links, loads_from_elsewhere
from experiments.site.notebooks import with_header
from experiments.site.pages import ROOT, write_answers, write_pages
from scaling.course.lessons.index import labs, lessons
from scaling.course.quizzes.quiz import find

CDN = "https://cdn.jsdelivr.net/pyodide/"  # of Pyodide alone
# What a browser does not have; the site's Python has to do without it.
ABSENT = ("jax", "jaxlib", "flax", "matplotlib", "scipy", "rich", "marimo", "markdown_it")
LESSONS = (*lessons(), *labs())
ASK = """
import json, sys
for name in sys.argv[3].split(","):
    sys.modules[name] = None
sys.path.insert(0, sys.argv[1])
from scaling.course.web.ask import ask
print(ask(sys.argv[2]))
"""


def asked(folder: Path, what: str, absent=ABSENT, **given):
    """What the project in a folder answers where some packages are not there."""
    command = [sys.executable, "-I", "-c", ASK, str(folder)]
    words = [json.dumps({"what": what, "with": given}), ",".join(absent)]
    done = subprocess.run([*command, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["answer"]


@pytest.fixture
def site(tmp_path) -> Path:
    """The pages with the wheel's name, without lessons and documents."""
    (tmp_path / "wheel").mkdir()
    wheel = tmp_path / "wheel" / "jax_scaling-9-py3-none-any.whl"
    wheel.touch()
    write_pages(tmp_path, wheel)
    return tmp_path


def test_pages_of_the_site_ask_a_python_in_the_browser(site):
    for page in site.glob("*.html"):
        assert '<html lang="en" data-backend="pyodide">' in page.read_text()
    assert 'WHEEL = "wheel/jax_scaling-9-py3-none-any.whl"' in (site / "pyodide.js").read_text()


def test_pages_load_nothing_from_elsewhere_but_pyodide(site):
    loads = loads_from_elsewhere(site)
    assert loads and not [line for line in loads if CDN not in line]


def test_links_that_lead_nowhere_and_loads_from_elsewhere_are_found(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "index.html").write_text('<a href="../a.html#x">up</a>')
    (tmp_path / "a.html").write_text(
        '<a href="folder/">in</a> <a href="b.html">no</a> <a href="https://host/">out</a>'
        '<script src="https://cdn/x.js"></script><img src="c.png">'
        '<link rel="stylesheet" href="//cdn/y.css"><link rel="canonical" href="https://host/a">'
    )
    (tmp_path / "x.js").write_text('fetch("http://other/z")')
    assert broken_links(tmp_path) == ["a.html: b.html", "a.html: c.png"]
    found = loads_from_elsewhere(tmp_path)
    assert found == ["a.html: //cdn/y.css", "a.html: https://cdn/x.js", "x.js: http://other/z"]


@pytest.mark.parametrize(
    "header", ["", '# /// script\n# [tool.marimo.display]\n# theme = "x"\n# ///\n']
)
def test_a_lesson_of_the_site_takes_the_project_from_its_wheel(tmp_path, header):
    """It has one header (PEP 723), whose keys stay."""
    wheel, file = tmp_path / "jax_scaling-9-py3-none-any.whl", tmp_path / "lesson.py"
    file.write_text(f"{header}import marimo\n")
    lines = with_header(file, wheel).splitlines()
    assert lines.count("# /// script") == lines.count("# ///") == 1
    end = lines.index("# ///")
    found = tomllib.loads("\n".join(line.removeprefix("# ") for line in lines[1:end]))
    assert found["dependencies"][0] == f"jax-scaling @ {wheel}"
    assert ("tool" in found) == bool(header) and lines[end + 1 :] == ["import marimo"]


def test_quizzes_are_answered_without_numpy(tmp_path):
    """As the site's pages do it: `answers.json` lies beside the module."""
    quiz = find("gpu-q2.3")
    write_answers(tmp_path, [quiz])
    (row,) = json.loads((tmp_path / "answers.json").read_text())[quiz.id]
    assert abs(row["ours"] - quiz.answers[0].expected) < 0.01
    listed = asked(ROOT, "quizzes", absent=(*ABSENT, "numpy"))
    assert quiz.id in [found["id"] for found in listed]


@pytest.mark.slow
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.file.stem)
def test_a_lesson_runs_with_what_a_browser_has(lesson):
    absent = repr(set(ABSENT) - {"scipy", "marimo", "markdown_it"})  # marimo brings the last
    code = f"import runpy, sys\nfor name in {absent}: sys.modules[name] = None\n"
    code += f"sys.path.insert(0, {str(ROOT)!r})\n"
    code += f"runpy.run_path({str(lesson.file)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_whole_site(tmp_path):
    for name in ("sphinx", "furo", "myst_parser", "nbformat"):
        pytest.importorskip(name, reason="make site installs it")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    docs, out = tmp_path / "docs", tmp_path / "site"
    for command in (["sphinx", "-q", "-b", "html", ROOT / "docs", docs], ["experiments.site"]):
        more = ["--docs", docs, "--out", out] if command == ["experiments.site"] else []
        words = [sys.executable, "-m", *map(str, [*command, *more])]
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert broken_links(out) == []
    assert not [line for line in loads_from_elsewhere(out) if CDN not in line]
    for lesson in LESSONS:
        name = lesson.file.stem
        page = (out / "lessons" / f"{name}.html").read_text()
        assert "jax-scaling @ ../public/wheels/jax_scaling-" in page
        assert "Take away" in (out / "lessons" / f"{name}_read.html").read_text()
        first, *others = json.loads((out / "lessons" / f"{name}.ipynb").read_text())["cells"]
        assert "another project's" in "".join(first["source"]) and others
    (wheel,) = (out / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "wheel")
    (tmp_path / "wheel/scaling/course/web/answers.json").write_bytes(
        (out / "answers.json").read_bytes()
    )
    found = asked(tmp_path / "wheel", "quiz", (*ABSENT, "numpy"), id="gpu-q2.3", guesses=[2.1])
    assert found["numbers"][0]["slips"]
