"""The server of the pages: files of its folder and answers, for this machine's browser alone."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from scaling.cli.main import main
from scaling.course.lessons.index import lessons
from scaling.course.puzzles.puzzle import puzzles
from scaling.course.web import server as web_server
from scaling.course.web.pages import (
    FILES,
    SERVER,
    WRITTEN,
    Place,
    glossary_page,
    puzzles_page,
    written,
)
from scaling.course.web.search import all_entries
from scaling.course.web.server import MOST_BODY, PAGES, PageServer, serve
from scaling.course.web.texts import ENGLISH
from tests.scaling.course.served import request, running


@pytest.fixture(scope="module")
def server():
    with running(PageServer()) as found:
        yield found


def test_a_page_is_sent_with_headers_that_let_nothing_else_in(server):
    status, headers, body = request(server, "GET", "/")
    assert status == 200 and body.decode() == WRITTEN["index.html"](SERVER)
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert request(server, "GET", "/ask.js?x=1")[1]["Content-Type"].startswith("text/javascript")


@pytest.mark.parametrize(
    "path",
    [
        *("/nothing.html", "/../server.py", "/%2e%2e/server.py", "/..%2fserver.py", "//etc/passwd"),
        *("/.", "/pages/", "/%00", "/index.html/", "/../pages/index.html", "/C:/x", "/ask"),
    ],
)
def test_no_other_file_is_sent_and_no_folder_is_listed(server, path):
    status, _, body = request(server, "GET", path)
    assert status == 404 and json.loads(body)["error"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "", None])
def test_a_name_that_is_not_ours_is_refused(server, host):
    for method, path in (("GET", "/"), ("POST", "/ask")):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=600)
        connection.putrequest(method, path, skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        assert connection.getresponse().status == 403
        connection.close()


def test_a_question_is_answered(server):
    status, _, body = request(server, "POST", "/ask", '{"what": "quizzes"}')
    assert status == 200 and json.loads(body)["answer"]
    status, _, body = request(server, "POST", "/ask", '{"what": "quizes"}')
    assert status == 200 and "did you mean" in json.loads(body)["error"]
    localhost = f"localhost:{server.server_port}"
    origin = {"Host": localhost, "Origin": f"http://{localhost}"}
    assert request(server, "POST", "/ask", "\xff".encode("latin-1"), **origin)[0] == 200


@pytest.mark.parametrize(
    ("status", "path", "headers"),
    [
        (404, "/asks", {}),
        (403, "/ask", {"Origin": "http://evil.example"}),
        (403, "/ask", {"Origin": "null"}),
        (403, "/ask", {"Origin": None}),
        (415, "/ask", {"Content_Type": "text/plain"}),
        (413, "/ask", {"Content_Length": str(MOST_BODY + 1)}),
        (413, "/ask", {"Content_Length": "-1"}),
        (413, "/ask", {"Content_Length": "9" * 30}),
        (413, "/ask", {"Content_Length": "x"}),
    ],
)
def test_other_questions_are_refused(server, status, path, headers):
    found, _, body = request(server, "POST", path, None, **headers)
    assert found == status and json.loads(body)["error"]


def test_a_fault_of_ours_is_told_in_the_page_and_in_the_terminal(server, monkeypatch, capsys):
    monkeypatch.setattr(web_server, "ask", lambda text: 1 / 0)
    status, _, body = request(server, "POST", "/ask", "{}")
    assert status == 500 and "ZeroDivisionError" in json.loads(body)["error"]
    assert "division by zero" in capsys.readouterr().err


def test_the_page_is_opened_and_ctrl_c_ends_the_server(monkeypatch, capsys):
    opened = []

    def interrupted(address):
        opened.append(address)
        raise KeyboardInterrupt

    monkeypatch.setattr(web_server.webbrowser, "open", interrupted)
    assert serve("quizzes.html") == 0
    assert opened[0].startswith("http://127.0.0.1:") and opened[0] in capsys.readouterr().out


def test_ctrl_c_ends_the_command_with_exit_code_0():
    environment = os.environ | {"BROWSER": "true"}
    # Tests may themselves run where Ctrl-C is ignored.
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from scaling.cli.main import command; sys.exit(command())"
    command = [sys.executable, "-c", code, "learn", "quizzes"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        assert "Ctrl-C ends" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert (process.wait(), process.stderr.read()) == (0, "")


def test_what_is_no_address_is_no_fault_of_ours(server):
    assert request(server, "GET", "http://[/")[0] == 400


def test_every_link_of_a_page_leads_to_a_page(server):
    """Documents are linked in a site alone."""
    for name in (name for name in WRITTEN if name.endswith(".html")):
        status, _, body = request(server, "GET", f"/{name}")
        assert status == 200 and b'data-backend="server"' in body
        for target in re.findall(r'(?:href|src)="([^"#:]+)"', body.decode()):
            if target != "docs/index.html":  # shown in a site alone
                assert request(server, "GET", f"/{target}")[0] == 200, f"{name}: {target}"


def test_the_glossary_and_the_lessons_are_written_from_the_projects_own_text(server):
    text = request(server, "GET", "/glossary.html")[2].decode()
    assert "<td>microbatch</td>" in text and ".md" not in text
    text = request(server, "GET", "/lessons.html")[2].decode()
    assert all(f"scaling learn lesson {lesson.number}<" in text for lesson in lessons())
    text = request(server, "GET", "/puzzles.html")[2].decode()
    assert all(f'id="puzzle-{puzzle.number}"' in text for puzzle in puzzles())
    assert '<a href="docs/reference.html">' in glossary_page(Place(is_site=True))


@pytest.mark.parametrize("words", [["gpu-q2.3"], ["--json"], ["--guess", "1"], ["--all"]])
def test_a_page_takes_no_options(words, capsys, monkeypatch):
    monkeypatch.setattr("scaling.cli.learn.serve_pages", lambda page: 1 / 0)
    assert main(["learn", "quizzes", *words]) == 2
    assert "scaling learn quizzes, and nothing more" in capsys.readouterr().err


def test_the_command_line_opens_a_page(monkeypatch):
    monkeypatch.setattr("scaling.cli.learn.serve_pages", lambda page: len(page))
    assert main(["learn", "explorer"]) == len("explorer.html")


def test_every_word_of_a_page_is_in_the_one_file_and_none_is_left_over():
    """Names that pages and scripts use are those of texts.toml; a script fills what it says."""
    folder = PAGES.parent
    sources = [*folder.glob("*.py"), *folder.glob("bodies/*.html"), *PAGES.glob("*.js")]
    text = "".join(file.read_text(encoding="utf-8") for file in sources)
    used = {f"{page}.{name}" for page, name in re.findall(r"\b([a-z]+)\.([a-z_]+)\b", text)}
    assert not [name for name in re.findall(r'said\("([\w.]+)"', text) if name not in ENGLISH]
    # built from a name: columns and figures of the explorer, kinds of what is found, pages
    built = ("explorer.", "search.", "all.", "hosts.", "lessons.", "glossary.")
    built += ("sweeps.title", "sweeps.sound", "sweeps.sick")
    assert not [n for n in ENGLISH if n not in used and not n.startswith(built)]
    for name in FILES:
        assert "{{" not in written(name) and "{{" not in written(name, Place(is_site=True))


def test_korean_pages_lie_in_a_folder_and_each_links_to_the_other_language(server):
    for name in ("index", "quizzes", "explorer", "lessons", "puzzles", "glossary", "sweeps"):
        english, korean = written(f"{name}.html"), written(f"ko/{name}.html")
        assert '<html lang="en"' in english and f'href="ko/{name}.html"' in english
        assert '<html lang="ko"' in korean and f'href="../{name}.html"' in korean
        assert "레슨" in korean and 'href="../style.css"' in korean
    assert "틀렸습니다" in written("ko/texts.js") and "틀렸습니다" not in written("texts.js")
    status, _, body = request(server, "GET", "/ko/")
    assert status == 200 and body.decode() == written("ko/index.html")


def test_what_is_found_has_an_address_of_a_page():
    found = all_entries({})
    assert {"lesson", "lab", "quiz", "puzzle", "topic", "word"} == {one["kind"] for one in found}
    inside = [one for one in found if not one["address"].startswith("https://")]
    assert all(one["title"] and one["address"].partition("#")[0] in WRITTEN for one in inside)
    assert any(one["title"] == "microbatch" for one in found)


def test_what_stands_in_backticks_in_a_puzzle_is_code():
    page = puzzles_page()
    assert "`" not in page and "<code>remat=&quot;full&quot;</code>" in page
