"""The page that collects guesses: a number in, a count out, and nothing else."""

import json
import math
import re
import signal
import socket
import subprocess
import sys
from html import escape
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.course.quizzes.common_mistakes import mistake
from scaling.course.teaching import class_page
from scaling.course.teaching.class_page import MOST, Question, Room, RoomServer, bars, hold
from scaling.meshes.errors import InputError
from tests.scaling.course import served
from tests.scaling.course.served import running

ASKED = Question("From which batch?", "tokens", 100.0, ("both directions",))
DOUBLED = mistake("both directions").sentence
SENDER = "0123456789abcdef"


@given(st.lists(st.floats(1e-29, 1e29), max_size=60))
def test_bars_hold_every_guess_once(guesses):
    found = bars(guesses)
    assert sum(bar.count for bar in found) == len(guesses) and len(found) <= class_page.BINS
    if guesses:
        low, high = median(guesses) / class_page.FAR, median(guesses) * class_page.FAR
        assert math.isclose(found[0].low, max(min(guesses), low), rel_tol=1e-9)
        assert math.isclose(found[-1].high, min(max(guesses), high), rel_tol=1e-9)
        assert all(bar.low <= bar.high for bar in found)


def test_a_second_guess_replaces_the_first_and_mistakes_are_counted():
    room = Room(ASKED)
    room.add(SENDER, "7")
    for i, text in enumerate(["100", "1,000", "2e2", "50", "99"]):
        room.add(f"{i:016x}", text)
    room.add(SENDER, "200")
    assert room.values == [50, 99, 100, 200, 200, 1000]
    counts = {words: n for n, words in room.mistakes()}
    assert counts["right"] == 2 and counts[DOUBLED] == 3
    assert "6 guesses, in the middle 150 tokens" in str(room) and median(room.values) == 150


@pytest.mark.parametrize(
    "text",
    ["", " ", "one", "-3", "0", "nan", "inf", "-inf", "1e400", "1e-400", "<b>", "1" * 41, "\x00",
     "1,5", "1,0,4", "2,00", "1_0_0_0_0_0_0_0_0_0_0_0_0_0_0_0_0_0_0_0_0_0"],
)  # fmt: skip
def test_what_is_no_guess_is_refused(text):
    room = Room(ASKED)
    with pytest.raises(InputError, match="one number"):
        room.add(SENDER, text)
    assert room.values == []


@pytest.mark.parametrize("sender", ["", "x", "0" * 17, "G" * 16, "../" * 6, "0" * 15 + "\n"])
def test_a_sender_that_no_page_made_is_refused(sender):
    with pytest.raises(InputError, match="reload"):
        Room(ASKED).add(sender, "1")


def test_a_full_room_takes_no_more_but_changes():
    room = Room(ASKED)
    for i in range(MOST):
        room.add(f"{i:016x}", "1")
    with pytest.raises(InputError, match="full"):
        room.add("f" * 16, "1")
    room.add(f"{0:016x}", "2")
    assert len(room.values) == MOST and room.values[-1] == 2


@pytest.fixture
def server():
    with running(RoomServer(Room(ASKED), 0, "127.0.0.1")) as found:
        yield found


def request(server, method, path, body=None, **headers):
    """Status and text of an answer to a form."""
    form = {"Content_Type": "application/x-www-form-urlencoded", **headers}
    status, _, text = served.request(server, method, path, body, **form)
    return status, text.decode()


def test_a_guess_is_taken_and_only_the_teacher_sees_how_they_lie(server):
    status, page = request(server, "GET", "/")
    sender = re.search('name="sender" value="([0-9a-f]{16})"', page)[1]
    assert status == 200 and "From which batch?" in page and "100 tokens" not in page
    status, page = request(server, "POST", "/", f"sender={sender}&guess=200")
    assert status == 200 and "Your guess is in" in page and sender in page
    assert server.room.values == [200]
    status, shown = request(server, "GET", server.secret)
    assert status == 200 and "1 guesses" in shown and "It is" not in shown
    _, shown = request(server, "GET", f"{server.secret}?answer")
    assert "It is 100 tokens" in shown and escape(DOUBLED) in shown
    assert escape(DOUBLED) not in request(server, "GET", "/")[1]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ("sender=0&guess=1", {"Origin": "http://evil.example"}, 403),
        ("sender=0&guess=1", {"Origin": "null"}, 403),
        ("x" * 201, {}, 413),
        ("a=1&b=2&c=3", {}, 200),
        ("", {}, 200),
        ("sender=%00&guess=%ff%fe", {}, 200),
        ("sender=0123456789abcdef&guess=<script>alert(1)</script>", {}, 200),
        ("sender=0123456789abcdef&guess=1&guess=2", {}, 200),
        ("guess=1", {"Content_Length": "-1"}, 413),
        ("guess=1", {"Content_Length": "many"}, 413),
        ("guess=1", {"Host": "evil.example"}, 403),
        ("guess=1", {"Host": "evil.example:1", "Origin": "http://evil.example:1"}, 403),
    ],
)
def test_rubbish_is_no_guess_and_is_never_shown(server, body, headers, status):
    found, page = request(server, "POST", "/", body, **headers)
    assert found == status and "<script" not in page
    assert server.room.values == []


@pytest.mark.parametrize("path", ["/x", "/../etc/passwd", "/?answer", "/%00", "http://[/"])
def test_nothing_else_is_sent(server, path):
    status, page = request(server, "GET", path)
    assert "It is" not in page and "<table" not in page
    assert status == (200 if path == "/?answer" else 404)
    assert request(server, "POST", "/x", "guess=1")[0] == 404


def test_the_server_goes_on_after_what_is_no_request(server):
    for rubbish in (b"\x00" * 500, b"GET", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.server_port)) as one:
            one.sendall(rubbish)
    assert request(server, "GET", "/")[0] == 200


def test_more_connections_than_a_class_has_are_closed(monkeypatch):
    monkeypatch.setattr(class_page, "MOST_CONNECTIONS", 2)
    with running(RoomServer(Room(ASKED), 0, "127.0.0.1")) as server:
        address = ("127.0.0.1", server.server_port)
        held = [socket.create_connection(address) for _ in range(2)]
        with socket.create_connection(address) as third:
            assert third.recv(1) == b"", "closed without a word"
        for one in held:
            one.sendall(b"GET / HTTP/1.0\r\n\r\n")
            while one.recv(4096):  # until its thread has ended it
                pass
            one.close()
        for _ in range(2):  # the threads give their places back a moment later
            server.free.acquire(timeout=600)
        for _ in range(2):
            server.free.release()
        assert request(server, "GET", "/")[0] == 200


def test_connections_that_browsers_hold_ready_keep_nobody_out(server):
    address = ("127.0.0.1", server.server_port)
    held = [socket.create_connection(address) for _ in range(100)]
    assert request(server, "GET", "/")[0] == 200
    for one in held:
        one.close()


@pytest.mark.parametrize("port", [0, 80, 70000, -1])
def test_a_port_of_the_system_is_refused(port):
    with pytest.raises(InputError, match="from 1024 to 65535"):
        hold(Room(ASKED), port)


def test_a_port_that_is_taken_is_said(server):
    with pytest.raises(InputError, match="cannot be had"):
        hold(Room(ASKED), server.server_port)


def test_the_command_listens_until_ctrl_c_and_then_prints_the_guesses():
    with RoomServer(Room(ASKED), 0, "127.0.0.1") as free:
        port = free.server_port
    code = (  # tests that run in the background of a shell ignore Ctrl-C, and so would it
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from scaling.cli.main import main\n"
        f"raise SystemExit(main(['learn', 'class', 'How many?', '--port', '{port}']))"
    )
    process = subprocess.Popen([sys.executable, "-uc", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("How many?")
        assert f":{port}/" in process.stdout.readline()
        secret = process.stdout.readline().split()[1]
        assert json.dumps(secret) and len(secret.rpartition("/")[2]) >= 12
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=600)
    finally:
        process.kill()
    assert "no guesses came in" in rest and process.returncode == 0
