"""A server of the course that runs in the tests' own process, and what a browser asks of it."""

import http.client
from contextlib import closing, contextmanager
from threading import Thread


@contextmanager
def running(server):
    """The server, until the end of the block."""
    with server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def request(server, method, path, body=None, **headers):
    """Status, headers and body of an answer; the headers given replace those of a browser."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=600)
    host = f"127.0.0.1:{server.server_port}"
    sent = {"Host": host}
    if method == "POST":
        sent |= {"Origin": f"http://{host}", "Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(connection):
        connection.request(method, path, body, {k: v for k, v in sent.items() if v is not None})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
