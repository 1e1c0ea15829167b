"""A page that collects the guesses of a class over the local network.

    scaling learn class 1 --port 8000     the teacher; prints two addresses, and ends with Ctrl-C
    http://ADDRESS:8000/                  students: the question, one field, no names
    http://ADDRESS:8000/SECRET            the teacher: how the guesses lie, and the answer

Nothing listens unless that command is typed with a port. Nothing about a sender is kept: a guess
has the random number of the page that it was typed into, so that a second one replaces the first.
What comes in is one number, of at most `LONGEST` letters and `MOST` senders; others see of it but
a count. Whoever is in this network can send guesses, as anybody in a room can raise a hand.
"""

import math
import secrets
import socket
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from ipaddress import ip_address
from statistics import median
from threading import BoundedSemaphore, Event, Lock, Thread
from urllib.parse import parse_qs

from scaling.course.language import language, said, speaking, t
from scaling.course.quizzes.answered import guess_of
from scaling.course.quizzes.common_mistakes import diagnose
from scaling.course.web.server import TYPES, WAITING, Handler, Refused, ctrl_c_raises
from scaling.meshes.errors import InputError
from scaling.questions.page import show

EVERYWHERE = "0.0.0.0"  # all addresses of this machine, by version 4 of the protocol
PORTS = (1024, 65535)  # those below are the system's
MOST = 500  # guesses, more than a lecture has
LONGEST = 40  # letters of a number, as in the quizzes
MOST_BODY = 200  # bytes of what a page sends
# At once; the next are closed. A browser may open one more than it asks by.
MOST_CONNECTIONS = 512
PATIENCE = 5.0  # s that a connection may be silent
SENDER = 16  # hexadecimal digits of the random number of a page
BINS = 12  # bars, at most
FAR = 100.0  # a prefix off is a factor of 1,000: such guesses would press all others together
WIDEST = 40  # letters of the longest bar in a terminal
RENEWED = 3  # s between two pictures of the teacher's page


@dataclass(frozen=True)
class Question:
    """What the class guesses."""

    text: str
    unit: str
    answer: float | None = None
    mistakes: tuple[str, ...] = ()  # that guesses may betray
    tolerance: float = 0.1


@dataclass(frozen=True)
class Bar:
    """How many guesses lie between two numbers."""

    low: float
    high: float
    count: int


def bars(guesses: Iterable[float]) -> list[Bar]:
    """Return a histogram of numbers above 0, with borders that grow by one factor.

    What lies further than a factor of `FAR` from the middle stands in the first or last bar.
    """
    found = sorted(guesses)
    if not found:
        return []
    middle = median(found)
    found = [min(max(guess, middle / FAR), middle * FAR) for guess in found]
    low, high = math.log(found[0]), math.log(found[-1])
    count = min(BINS, max(1, math.ceil(math.sqrt(len(found))) + 2)) if high > low else 1
    width = (high - low) / count
    place = lambda x: min(int((math.log(x) - low) / width), count - 1) if width else 0
    inside = Counter(map(place, found))
    edge = lambda i: math.exp(low + i * width)
    return [Bar(edge(i), edge(i + 1), inside[i]) for i in range(count)]


@dataclass
class Room:
    """The guesses that came in."""

    question: Question
    guesses: dict[str, float] = field(default_factory=dict)  # by the random number of a page
    lock: Lock = field(default_factory=Lock)

    def add(self, sender: str, text: str) -> None:
        """Keep a guess; InputError for what is none, or when the room is full."""
        if len(sender) != SENDER or not set(sender) <= set("0123456789abcdef"):
            raise InputError("reload the page, and write your guess again")
        try:
            value = guess_of(text) if len(text) <= LONGEST else math.nan
        except InputError:
            value = math.nan
        if not 1e-30 < value < 1e30:
            raise InputError("write one number above 0, such as 1040, 1,040 or 1.04e3")
        with self.lock:
            if sender not in self.guesses and len(self.guesses) >= MOST:
                raise InputError(f"the room is full: {MOST} guesses")
            self.guesses[sender] = value

    @property
    def values(self) -> list[float]:
        """The guesses in their order."""
        with self.lock:
            return sorted(self.guesses.values())

    def mistakes(self) -> list[tuple[int, str]]:
        """Return how many guesses are right, and how many betray which mistakes, most first."""
        one = self.question
        if one.answer is None:
            return []
        verdicts = [diagnose(v, one.answer, one.tolerance, one.mistakes) for v in self.values]
        wrong = (verdict.mistakes for verdict in verdicts if verdict.mistakes)
        counts = Counter(t(" Or: ").join(m.sentence for m in some) for some in wrong)
        right = sum(verdict.right for verdict in verdicts)
        return [(right, t("right")), *((n, sentences) for sentences, n in counts.most_common())]

    def __str__(self) -> str:
        values, unit = self.values, self.question.unit
        if not values:
            return t("no guesses came in")
        lines = [_count(values, unit)]
        found = bars(values)
        each = max(1.0, max(bar.count for bar in found) / WIDEST)
        for bar in found:
            row = "#" * math.ceil(bar.count / each)
            lines.append(f"{show(bar.low, ''):>10} - {show(bar.high, ''):<10} {bar.count:>3} {row}")
        lines += [f"{count:>4}  {words}" for count, words in self.mistakes() if count]
        return "\n".join(lines)


class RoomHandler(Handler):
    """The students' page, the teacher's page, and a guess."""

    server: "RoomServer"  # type: ignore[assignment]
    timeout = PATIENCE

    def _file(self) -> tuple[str, bytes]:
        path, _, query = self.path.partition("?")
        if path == "/":
            return TYPES[".html"], _student(self.server.room, "").encode()
        if secrets.compare_digest(path.encode("utf-8", "replace"), self.server.secret.encode()):
            return TYPES[".html"], _teacher(self.server.room, query == "answer").encode()
        raise Refused(HTTPStatus.NOT_FOUND, "no page has this name")

    def _ask(self) -> tuple[str, bytes]:
        if self.path != "/":
            raise Refused(HTTPStatus.NOT_FOUND, "guesses are sent to /")
        here = f"http://{self.headers['Host']}"
        if self.headers.get("Origin", here) != here:
            raise Refused(HTTPStatus.FORBIDDEN, "another site's page may not send guesses")
        text = self._body(MOST_BODY)
        try:
            given = parse_qs(text, max_num_fields=2)
            sender, guess = (given.get(name, [""])[0] for name in ("sender", "guess"))
            self.server.room.add(sender, guess.strip())
        except ValueError as error:  # InputError, and more fields than a page has
            why = str(error) if isinstance(error, InputError) else "write one number"
            return TYPES[".html"], _student(self.server.room, said(why)).encode()
        return TYPES[".html"], _student(self.server.room, "", sender, guess.strip()).encode()


class _Addresses:
    """Names under which a page may ask: addresses in numbers, and this machine's own name."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __contains__(self, host: object) -> bool:
        name, _, port = str(host).rpartition(":")
        own = socket.gethostname().lower()
        try:
            return port == str(self.port) and bool(ip_address(name.strip("[]")))
        except ValueError:
            return port == str(self.port) and name.lower() in ("localhost", own, f"{own}.local")


class RoomServer(ThreadingHTTPServer):
    """A server of the local network, on a port that was asked for."""

    daemon_threads = True
    request_queue_size = WAITING

    def __init__(self, room: Room, port: int, host: str = EVERYWHERE) -> None:
        self.room, self.secret = room, f"/{secrets.token_urlsafe(9)}"
        self.language = language()  # which threads do not inherit
        self.free = BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((host, port), RoomHandler)
        self.hosts = _Addresses(self.server_port)
        self.address = f"http://{_own_address()}:{self.server_port}"

    def process_request(self, request: object, client_address: object) -> None:
        """Answer in a thread; close the connection when there are too many."""
        if not self.free.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[arg-type]
            return
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        """Answer, and make room for the next."""
        try:
            with speaking(self.language):
                super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self.free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a reader has left, or sent what is no request."""


def hold(room: Room, port: int) -> int:
    """Collect guesses until Ctrl-C, print how they lie, and return 0.

    Raises:
        InputError: the port cannot be had.
    """
    if not PORTS[0] <= port <= PORTS[1]:
        raise InputError(f"--port {port} must be from {PORTS[0]} to {PORTS[1]}")
    try:
        server = RoomServer(room, port)
    except OSError as error:
        raise InputError(f"--port {port} cannot be had ({error}); choose another") from None
    with server:
        Thread(target=server.serve_forever, daemon=True).start()
        with suppress(KeyboardInterrupt), ctrl_c_raises():
            print(f"{room.question.text} ({t(room.question.unit or 'a ratio')})")
            print(t("students, in this network: {address}", address=f"{server.address}/"))
            own = f"{server.address}{server.secret}"
            print(t("you: {address} (Ctrl-C ends)", address=own), flush=True)
            Event().wait()
        server.shutdown()
    print(room)
    return 0


def _own_address() -> str:
    """Return the address by which others in the local network reach this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # of documentation (RFC 5737): nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _student(room: Room, problem: str, sender: str = "", guess: str = "") -> str:
    one = room.question
    told = f'<p class="wrong" role="alert">{escape(problem)}</p>' if problem else ""
    if guess:
        words = t("Your guess is in: {guess}. You may change it.", guess=f"<b>{escape(guess)}</b>")
        told = f'<p role="status">{words}</p>'
    sender = sender or secrets.token_hex(SENDER // 2)
    return _page(
        t("Your guess"),
        f"""<h1>{escape(one.text)}</h1>{told}
<form method="post" action="/"><input type="hidden" name="sender" value="{sender}">
<label>{escape(t("One number, in {unit}.", unit=t(one.unit or "a ratio")))}
<input name="guess" inputmode="decimal" maxlength="{LONGEST}" required autocomplete="off"></label>
<button>{t("Send")}</button></form><p class="soft">{t("No name is asked for or kept.")}</p>""",
    )


def _teacher(room: Room, is_open: bool) -> str:
    one, values = room.question, room.values
    found = bars(values)
    most = max((bar.count for bar in found), default=1)
    rows = "".join(
        f"<tr><th scope='row'>{escape(show(bar.low, ''))} - {escape(show(bar.high, ''))}</th>"
        f"<td><span class='bar' style='width:{80 * bar.count / most:.1f}%'></span> {bar.count}</td>"
        "</tr>"
        for bar in found
    )
    answer = f'<p><a href="?answer">{t("Show the answer")}</a></p>'
    if one.answer is None:
        answer = ""
    elif is_open:
        told = "".join(f"<li>{n}: {escape(words)}</li>" for n, words in room.mistakes() if n)
        shown = escape(show(one.answer, t(one.unit)))
        answer = f"<h2>{t('It is {answer}', answer=shown)}</h2><ul>{told}</ul>"
    return _page(
        t("The class"),
        f"<h1>{escape(one.text)}</h1><p class='big'>{escape(_count(values, one.unit))}</p>"
        f"<table>{rows}</table>{answer}",
        "" if is_open else f'<meta http-equiv="refresh" content="{RENEWED}">',
    )


def _count(values: list[float], unit: str) -> str:
    if not values:
        return t("no guesses yet")
    middle = show(median(values), t(unit))
    return t("{n} guesses, in the middle {middle}", n=len(values), middle=middle)


def _page(title: str, body: str, head: str = "") -> str:
    return f"""<!doctype html>
<html lang="{language()}"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="same-origin">{head}
<title>{title}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>
"""


STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; font: 1.2rem/1.5 system-ui, sans-serif; background: Canvas; color: CanvasText; }
main { max-width: 46rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; line-height: 1.3; }
input, button { font: inherit; padding: 0.5rem 0.8rem; min-height: 2.8rem; }
label input { display: block; width: 100%; box-sizing: border-box; margin: 0.4rem 0 0.8rem; }
.wrong { border-left: 4px solid #c2410c; padding-left: 0.8rem; }
.big { font-size: 1.5rem; }
table { width: 100%; border-collapse: collapse; }
th { text-align: right; font-weight: 400; white-space: nowrap; padding: 0.2rem 0.8rem 0.2rem 0; }
td { width: 70%; }
.bar { display: inline-block; height: 1.2rem; background: #0072b2; vertical-align: middle; }
"""
