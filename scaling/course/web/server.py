"""The server of the pages: this machine's browser asks, nobody else is answered.

It listens on the loopback address, sends the files of one folder and no others, and answers
POST /ask. A page of another site that leads its own name here (DNS rebinding), or that posts to
this address, is refused: the host must be ours, and so must the page that posts.
"""

import json
import signal
import sys
import traceback
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from urllib.parse import unquote, urlsplit

from scaling.course.language import language
from scaling.course.web.ask import ask
from scaling.course.web.pages import FILES, written
from scaling.meshes.errors import is_count

PAGES = Path(__file__).parent / "pages"
LOOPBACK = "127.0.0.1"  # nobody but this machine
MOST_BODY = 1_000_000  # bytes of a question; a calibration file has some ten thousand
PATIENCE = 30.0  # s that a connection may be silent
WAITING = 128  # connections before they are taken; of more than Python's 5 some were reset
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
HEADERS = {
    # Scripts, styles and questions from here alone; no page of another site shows ours in a frame.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """A request that is not answered, with its status."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    """Files of PAGES, and POST /ask."""

    timeout = PATIENCE
    server: "PageServer"

    def do_GET(self) -> None:
        """Send a file."""
        self._answered(self._file)

    def do_POST(self) -> None:
        """Answer a question."""
        self._answered(self._ask)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a reader asks several times a second."""

    def _answered(self, make: Callable[[], tuple[str, bytes]]) -> None:
        """Send what a function returns, a type and a body; or why it could not."""
        status = HTTPStatus.OK
        try:
            if self.headers.get("Host") not in self.server.hosts:
                raise Refused(HTTPStatus.FORBIDDEN, f"write {self.server.address}")
            kind, body = make()
        except Refused as refused:
            status, kind, body = refused.status, TYPES[".json"], _error(str(refused))
        except (ConnectionError, TimeoutError):  # the reader has left
            raise
        except Exception as error:  # a fault of ours: the page says so, the terminal where
            status, kind = HTTPStatus.INTERNAL_SERVER_ERROR, TYPES[".json"]
            body = _error(f"this is a fault of scaling: {error!r}")
            print("".join(traceback.format_exception(error)), file=sys.stderr)
        self.send_response(status)
        headers = HEADERS | {"Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _file(self) -> tuple[str, bytes]:
        """Return type and bytes of the file that is asked for."""
        try:
            path = unquote(urlsplit(self.path).path)
        except ValueError:  # such as http://[/
            raise Refused(HTTPStatus.BAD_REQUEST, "this is no address") from None
        name = f"{path[1:]}index.html" if path.endswith("/") else path[1:]
        if name in FILES:
            return TYPES[Path(name).suffix], written(name).encode()
        # of the files below PAGES, by path: nothing else can be named
        files = (file for file in PAGES.rglob("*") if file.suffix in TYPES and file.is_file())
        named = {f"/{file.relative_to(PAGES).as_posix()}": file for file in files}
        file = named.get(path)
        if file is None:
            raise Refused(HTTPStatus.NOT_FOUND, "no page has this name")
        return TYPES[file.suffix], file.read_bytes()

    def _ask(self) -> tuple[str, bytes]:
        if self.path != "/ask":
            raise Refused(HTTPStatus.NOT_FOUND, "questions are sent to /ask")
        if self.headers.get("Origin") not in {f"http://{host}" for host in self.server.hosts}:
            raise Refused(HTTPStatus.FORBIDDEN, "another site's page may not ask")
        if self.headers.get_content_type() != TYPES[".json"]:
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a question is application/json")
        text = self._body(MOST_BODY)
        with self.server.one_at_a_time:
            return TYPES[".json"], ask(text).encode()

    def _body(self, most: int) -> str:
        """Return what was sent, of at most so many bytes."""
        length = self.headers.get("Content-Length", "")
        if not is_count(length) or int(length) > most:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {most:,} bytes")
        return self.rfile.read(int(length)).decode(errors="replace")


class PageServer(ThreadingHTTPServer):
    """A server on the loopback address; `port` 0 takes one that is free."""

    daemon_threads = True
    request_queue_size = WAITING

    def __init__(self, port: int = 0) -> None:
        super().__init__((LOOPBACK, port), Handler)
        self.hosts = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}
        self.address = f"http://{LOOPBACK}:{self.server_port}/"
        self.one_at_a_time = Lock()  # commands write to one standard output

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a reader who left before the answer; all else is printed."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            traceback.print_exc()


def serve(page: str) -> int:
    """Serve the pages, open one in the browser, and go on until Ctrl-C; returns 0."""
    with PageServer() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with suppress(KeyboardInterrupt), ctrl_c_raises():
            address = server.address + ("" if language() == "en" else f"{language()}/") + page
            print(f"{address} (Ctrl-C ends)", flush=True)
            webbrowser.open(address)
            Event().wait()
        server.shutdown()
    return 0


@contextmanager
def ctrl_c_raises() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt: to end a server is no failure of its command."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # as in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _error(message: str) -> bytes:
    return json.dumps({"error": message}).encode()
