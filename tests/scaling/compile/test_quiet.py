"""What C++ libraries write to file descriptor 2 goes into a log; our own messages do not."""

import os
import resource
import sys
from contextlib import nullcontext

import pytest

from scaling.compile.quiet import LONGEST, VERBOSE, log_path, quiet
from scaling.meshes.errors import InputError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))
    monkeypatch.delenv(VERBOSE, raising=False)


def noise():
    os.write(2, b"cudart_stub.cc:31] no drivers\n")


def test_the_noise_of_libraries_goes_into_the_log_and_our_messages_do_not(capfd):
    with quiet():
        noise()
        print("warning: ours", file=sys.stderr)
        sys.stderr.flush()
    noise()
    assert capfd.readouterr().err == "warning: ours\ncudart_stub.cc:31] no drivers\n"
    assert log_path().read_text() == "cudart_stub.cc:31] no drivers\n"


def test_a_failure_shows_the_log_of_this_time(capfd):
    with quiet():
        os.write(2, b"of an earlier time\n")
    with pytest.raises(ZeroDivisionError), quiet():
        noise()
        _ = 1 / 0
    err = capfd.readouterr().err
    assert "no drivers" in err and str(log_path()) in err and "earlier" not in err


def test_bad_input_shows_no_log(capfd):
    with pytest.raises(InputError), quiet():
        noise()
        raise InputError("bad")
    assert capfd.readouterr().err == ""


def test_too_little_address_space_is_one_message(monkeypatch):
    """Else XLA aborts the process where a thread cannot begin."""
    limits = {"3.0 GB": (3 * 10**9, -1), None: (4 * 10**9, -1)}
    for said, limit in limits.items():
        monkeypatch.setattr(resource, "getrlimit", lambda kind, limit=limit: limit)
        with pytest.raises(InputError, match=f"may use {said}.*ulimit") if said else nullcontext():
            with quiet():
                pass


def test_verbose_leaves_stderr_alone(capfd, monkeypatch):
    monkeypatch.setenv(VERBOSE, "1")
    with quiet():
        noise()
    assert "no drivers" in capfd.readouterr().err and not log_path().exists()


def test_a_log_that_cannot_be_written_is_no_error(capfd, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path / "file"))
    with quiet():
        noise()
    assert "no drivers" in capfd.readouterr().err


def test_a_log_that_has_grown_long_is_begun_anew():
    log_path().write_bytes(b"x" * (LONGEST + 1))
    with quiet():
        noise()
    assert log_path().stat().st_size < 100


def test_on_a_terminal_a_line_says_what_is_done(capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with quiet("compiling tiny ..."):
        pass
    assert capfd.readouterr().err == "compiling tiny ...\n"
