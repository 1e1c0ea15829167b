"""The static site: its pages, its check of links, and the whole of it (slow tier)."""

import base64
import gzip
import json
import os
import subprocess
import sys
import tomllib
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from experiments.site import runtime
from experiments.site.check import broken_links, loads_from_elsewhere
from experiments.site.documents import document_entries
from experiments.site.notebooks import open_page, read_page, with_header, write_run
from experiments.site.pages import ROOT, place_of, write_pages
from experiments.site.read import plain
from experiments.site.runtime import (
    LESSONS_LOCK,
    LOCK,
    hosts_of,
    marimo_version_of_pyodide,
    pyodide_version,
)
from experiments.site.stored import cache_folder, cached, keep, write_small
from scaling.course.language import speaking
from scaling.course.lessons.index import labs, lessons
from scaling.course.quizzes.quiz import find
from scaling.course.web.pages import spoken
from scaling.program.stored import stored_programs

CDN = "https://cdn.jsdelivr.net/"  # of Pyodide alone
# What a browser does not have; the site's Python has to do without it.
ABSENT = (
    *("jax", "jaxlib", "flax", "matplotlib", "scipy", "rich", "marimo", "markdown_it"),
    *(
        "curses",
        "grp",
        "pwd",
        "readline",
        "resource",
        "syslog",
        "tkinter",
    ),  # Pyodide 314 omits them
)
LESSONS = (*lessons(), *labs())


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


def test_pages_of_every_language_lead_to_the_same_documents(site):
    (site / "docs").mkdir()
    for name in ("index", "reference"):
        (site / "docs" / f"{name}.html").touch()
    linked = [page for page in site.rglob("*.html") if "docs/index.html" in page.read_text()]
    assert {page.parent for page in linked} == {site, site / "ko"}
    assert not [line for line in broken_links(site) if "docs/" in line]


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


def test_what_pages_show_without_python_is_written_as_scripts(tmp_path):
    quiz = find("gpu-q2.3")
    write_small(tmp_path, [quiz], [{"kind": "docs", "title": "x", "address": "docs/x.html"}])
    found = {file.stem: kept(file) for file in (tmp_path / "stored").iterdir()}
    korean = {file.stem: kept(file) for file in (tmp_path / "ko" / "stored").iterdir()}
    assert set(korean) == set(found)
    assert "측정값" in korean["answers"][quiz.id]["note"]
    assert korean["search"][-1]["address"] == "../docs/x.html"
    assert set(found) == {"quizzes", "answers", "programs", "sweeps", "search"}
    (number,) = found["answers"][quiz.id]["numbers"]
    assert abs(number["answer"] - quiz.answers[0].expected) < 0.01
    assert quiz.id in [row["id"] for row in found["quizzes"]]
    assert found["search"][-1]["title"] == "x"


def kept(file: Path):
    """What a page has of a stored script."""
    text = file.read_text()
    name, value = json.loads(f"[{text.removeprefix('keep(').removesuffix(');' + chr(10))}]")
    assert name == file.stem
    return json.loads(gzip.decompress(base64.b64decode(value))) if isinstance(value, str) else value


@pytest.mark.parametrize("value", [{"a": 1.5}, ["</script>"] * 5000])
def test_a_stored_answer_is_what_was_kept(tmp_path, value):
    keep(tmp_path / "x.js", "x", value)
    assert kept(tmp_path / "x.js") == value


def test_what_is_kept_between_builds_follows_its_source(tmp_path):
    source, made = tmp_path / "a.py", []
    for text in ("1", "1", "2"):
        source.write_text(text)
        assert cached(tmp_path, source, lambda: made.append(1) or source.read_text()) == text
    assert len(made) == 2
    (tmp_path / "cache" / "of other sources").mkdir(parents=True)
    folder = cache_folder(tmp_path / "cache")
    assert folder == cache_folder(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == [folder]


def test_pages_and_lessons_have_one_python():
    assert pyodide_version() == marimo_version_of_pyodide()


LOCKED = {
    "packages": {
        "numpy": {
            "file_name": "numpy-2.whl",
            "depends": ["blas"],
            "sha256": "",
            "imports": ["numpy"],
        },
        "blas": {"file_name": "blas-1.zip", "depends": [], "sha256": ""},
    }
}


def test_wheels_that_were_had_lie_beside_and_others_are_on_the_cdn(tmp_path):
    (tmp_path / "numpy-3-cp314-cp314-pyemscripten_2026_0_wasm32.whl").write_bytes(b"n")
    (tmp_path / "python_multipart-1-py3-none-any.whl").touch()
    found = runtime.with_wheels(LOCKED, tmp_path)
    numpy, blas = (found["packages"][name] for name in ("numpy", "blas"))
    assert numpy["file_name"].startswith("numpy-3-") and numpy["version"] == "3"
    assert numpy["sha256"] == sha256(b"n").hexdigest() and numpy["imports"] == ["numpy"]
    assert blas["file_name"] == f"{runtime.CDN}blas-1.zip"
    assert found["packages"]["python-multipart"]["depends"] == []
    (tmp_path / LOCK).write_text(json.dumps(found))
    assert hosts_of(tmp_path, ("numpy",)) == ["cdn.jsdelivr.net"]
    assert hosts_of(tmp_path, ("python-multipart",)) == []


def test_a_wheel_that_is_another_is_refused():
    package = {"file_name": "numpy-2.whl", "sha256": sha256(b"n").hexdigest()}
    assert runtime.proven(b"n", package) == b"n"
    with pytest.raises(SystemExit, match="numpy-2.whl .* another sha256"):
        runtime.proven(b"x", package)


def test_what_a_registry_lacks_is_named_and_loaded_from_the_cdn(tmp_path, monkeypatch):
    core, out = tmp_path / "core", tmp_path / "out"
    core.mkdir()
    for name in runtime.CORE:
        (core / name).write_text(json.dumps(LOCKED))

    def absent(folder, packages, *words):
        raise runtime.Absent(f"{packages[0]}: no")

    monkeypatch.setattr(runtime, "from_npm", lambda pyodide, folder: core)
    monkeypatch.setattr(runtime, "from_pypi", absent)
    assert [line.partition("==")[0] for line in runtime.take(out)] == ["open-webui", "marimo-base"]
    assert hosts_of(out, ("numpy",)) == ["cdn.jsdelivr.net"]
    assert not (out / LESSONS_LOCK).exists() and "pypi.org" in hosts_of(out, None)


def test_a_wheel_of_what_is_installed_has_no_compiled_part(tmp_path):
    runtime.pure_wheel("pyyaml", tmp_path)
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "yaml/loader.py" in names and any(name.endswith("info/METADATA") for name in names)
    assert not [name for name in names if name.endswith((".so", ".pyd", ".pyc"))]


def test_what_a_page_loads_from_other_hosts_stands_on_it(tmp_path, site):
    assert "loads what it lacks from cdn.jsdelivr.net" in (site / "explorer.html").read_text()
    assert "wasm.marimo.app" in (site / "lessons.html").read_text()
    for name in ("index", "quizzes", "puzzles", "glossary"):
        assert "loads nothing from another host" in (site / f"{name}.html").read_text()
    numpy = {"file_name": "numpy.whl", "depends": []}
    (tmp_path / LOCK).write_text(json.dumps({"packages": {"numpy": numpy}}))
    assert place_of(tmp_path).hosts["explorer"] == []


def test_a_lesson_takes_python_from_the_site_where_that_has_all_of_it(tmp_path):
    (tmp_path / "lessons").mkdir()
    (tmp_path / "pyodide").mkdir()
    page = tmp_path / "lessons" / "x.html"
    for exists in (False, True):
        page.write_text("<head></head><marimo-wasm hidden>scipy==1.2 %22numpy%3D%3D2.4%22")
        if exists:
            (tmp_path / "pyodide" / LESSONS_LOCK).touch()
        open_page(page, place_of(None))
        assert ('data-pyodide-index-url="../pyodide/"' in page.read_text()) == exists
        assert 'src="../open.js"' in page.read_text()
        assert "scipy %22numpy%22" in page.read_text(), "the version is Pyodide's"


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p style='color: red' onclick='x()'>a &amp; b<br>c</p>", "<p>a &amp; b<br>c</p>"),
        (
            """<marimo-ui-element><marimo-slider data-label='"batch"' data-initial-value='1'
            data-steps='[1, 2]'></marimo-slider></marimo-ui-element>""",
            '<div class="control">batch <b>2</b></div>',
        ),
        (
            """<marimo-accordion data-labels='["more"]'><div>x<div>y</div></div>"""
            "</marimo-accordion>",
            '<div class="accordion"><details><summary>more</summary>x<div>y</div></details></div>',
        ),
        (
            "<table><tr><th></th><td>1</td></tr></table>",
            '<table tabindex="0"><tr><td></td><td>1</td></tr></table>',
        ),
        ('<svg viewBox="0 0 1 1"><g/></svg>', '<svg viewBox="0 0 1 1"><g></g></svg>'),
    ],
)
def test_a_run_is_shown_without_elements_of_marimo(html, expected):
    assert plain(html) == expected


def test_formulas_of_a_run_are_typeset_without_a_script():
    pytest.importorskip("latex2mathml", reason="make site installs it")
    assert "<mfrac>" in plain("<marimo-tex>||(\\frac{C}{W}||)</marimo-tex>")


def test_the_page_of_a_run_has_one_heading_and_leads_back():
    text = read_page(LESSONS[0], "<h1>Title</h1>", place_of(None))
    assert text.count("<h1>") == 1 and 'href="../lessons.html"' in text


@pytest.mark.slow
def test_the_page_of_a_run_is_written_in_korean(tmp_path):
    place = place_of(None)
    with speaking("ko"):
        write_run(LESSONS[-1], tmp_path / "ko" / "lessons", spoken(place), tmp_path)
    text = (tmp_path / "ko" / "lessons" / f"{LESSONS[-1].file.stem}_read.html").read_text()
    assert '<html lang="ko"' in text and "정리." in text and "Take away" not in text
    assert 'href="../../style.css"' in text and 'href="../lessons.html"' in text


def test_sections_of_the_documentation_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<nav>no</nav><article><section id="top"><h1>Top<a href="#top">#</a></h1><p>Words</p>'
        '<pre>code</pre><section id="in"><h2>In</h2><p>More <b>words</b></p></section></article>'
    )
    first, second = document_entries(tmp_path)
    assert first == {"kind": "docs", "title": "Top", "text": "Words", "address": "docs/a.html#top"}
    assert second["address"] == "docs/a.html#in" and second["text"] == "More words"


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
        more = (
            ["--docs", docs, "--out", out, "--cache", tmp_path / "cache"]
            if command == ["experiments.site"]
            else []
        )
        words = [sys.executable, "-m", *map(str, [*command, *more])]
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert broken_links(out) == []
    assert not [line for line in loads_from_elsewhere(out) if CDN not in line]
    for lesson in LESSONS:
        name = lesson.file.stem
        page = (out / "lessons" / f"{name}.html").read_text()
        assert "jax-scaling @ ../public/wheels/jax_scaling-" in page
        read = (out / "lessons" / f"{name}_read.html").read_text()
        assert "Take away" in read and "<marimo" not in read
        korean = (out / "ko" / "lessons" / f"{name}_read.html").read_text()
        assert "정리." in korean and "Take away" not in korean and "../../style.css" in korean
        first, *others = json.loads((out / "lessons" / f"{name}.ipynb").read_text())["cells"]
        assert "another project's" in "".join(first["source"]) and others
    (wheel,) = (out / "wheel").glob("*.whl")
    assert "scaling/course/web/texts.toml" in zipfile.ZipFile(wheel).namelist()
    steps = [file for file in (out / "stored").glob("program-*.js")]
    assert kept(steps[0])["step"]["seconds"] > 0 and len(steps) == len(stored_programs())
    assert kept(out / "stored" / "splits.js")["svg"].startswith("<svg")
    assert any(one["kind"] == "docs" for one in kept(out / "stored" / "search.js"))
