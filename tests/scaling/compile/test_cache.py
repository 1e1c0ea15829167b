"""Programs kept on disk: found again, made again where they are damaged, never in the way."""

import gzip
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from random import Random

import pytest

from scaling.compile import cache
from scaling.program.ir import Kernel, Program

KEY = "0123"
DIGITS = b"0123456789"
PROGRAM = Program("p", "compiled", {"data": 2}, (Kernel("k", flops=2.0),))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of programs, which is not there yet."""
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))
    return tmp_path / "programs"


def test_what_is_kept_is_found(place: Path) -> None:
    assert cache.folder() == place
    assert cache.load_cached(KEY) is None
    cache.store(KEY, PROGRAM, "HloModule")
    assert cache.load_cached(KEY) == (PROGRAM, "HloModule")
    assert sorted(path.name for path in place.iterdir()) == [f"{KEY}.hlo.gz", f"{KEY}.json"]


def test_a_program_is_made_once_under_whatever_name() -> None:
    made = []

    def make() -> tuple[Program, str]:
        made.append(1)
        return PROGRAM, "text"

    first, text = cache.load_or_make(KEY, "first", make)
    again, same = cache.load_or_make(KEY, "second", make)
    assert made == [1] and text == same == "text"
    assert (first.name, again.name) == ("first", "second")
    assert first.schedule == again.schedule == PROGRAM.schedule


@pytest.mark.parametrize(
    "name, content",
    [
        ("json", b'{"format": 0}'),
        ("json", None),
        ("hlo.gz", b""),
        ("hlo.gz", gzip.compress(b"HloModule", mtime=0)[:-9]),
        ("hlo.gz", gzip.compress(b"HloModule" * 99, mtime=0)[:12] + b"\0" * 40),
        ("hlo.gz", gzip.compress(b"\xff\xfe", mtime=0)),
    ],
)
def test_a_damaged_or_missing_file_is_made_again(place: Path, name: str, content) -> None:
    cache.store(KEY, PROGRAM, "HloModule")
    path = place / f"{KEY}.{name}"
    if content is None:
        cache.store("other", PROGRAM, "HloModule")
        for path in place.glob(f"{KEY}.*"):
            path.unlink()
    else:
        path.write_bytes(content)
    with pytest.warns(UserWarning, match="damaged") if content is not None else nullcontext():
        cache.load_or_make(KEY, "p", lambda: (PROGRAM, "HloModule"))
    assert cache.load_cached(KEY) == (PROGRAM, "HloModule")


def test_no_changed_byte_changes_what_is_found(place: Path) -> None:
    """One digit at every place that has one, and random bytes in both files."""
    cache.store(KEY, PROGRAM, "HloModule")
    draw, tried = Random(0), 0
    for path in place.iterdir():
        whole = path.read_bytes()
        digits = [(at, str(9 - int(chr(b))).encode()) for at, b in enumerate(whole) if b in DIGITS]
        other = [(draw.randrange(len(whole)), draw.randbytes(1)) for _ in range(200)]
        for at, byte in digits + other:
            path.write_bytes(whole[:at] + byte + whole[at + 1 :])
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found = cache.load_cached(KEY)
            assert found == (PROGRAM, "HloModule") or (found is None and len(said) == 1)
            tried += found is None
        path.write_bytes(whole)
    assert tried > 200


def test_a_program_under_another_key_is_made_again(place: Path) -> None:
    cache.store(KEY, PROGRAM, "HloModule")
    for path in list(place.iterdir()):
        path.rename(path.with_name(path.name.replace(KEY, "4567")))
    with pytest.warns(UserWarning, match="does not match its hash"):
        assert cache.load_cached("4567") is None


def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="the program is not stored: .*; set SCALING_CACHE"):
        program, text = cache.load_or_make(KEY, "p", lambda: (PROGRAM, "text"))
    assert (program, text) == (PROGRAM, "text")


def test_a_folder_that_may_not_be_read_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    for method in ("read_bytes", "read_text", "mkdir", "exists"):
        monkeypatch.setattr(Path, method, refuse)
    with pytest.warns(UserWarning, match="not stored: .*Permission denied"):
        assert cache.load_or_make(KEY, "p", lambda: (PROGRAM, "text"))[0] == PROGRAM


def test_several_writers_leave_whole_files_and_nothing_else(place: Path) -> None:
    text = "HloModule " * 10_000
    with ThreadPoolExecutor(8) as threads:
        jobs = [threads.submit(cache.store, KEY, PROGRAM, text) for _ in range(40)]
        jobs += [threads.submit(cache.load_cached, KEY) for _ in range(40)]
        found = [job.result() for job in jobs]
    assert all(each in (None, (PROGRAM, text)) for each in found)
    assert len(list(place.iterdir())) == 2


def test_a_writer_that_is_stopped_leaves_no_half_file(place: Path, monkeypatch) -> None:
    def stop(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", stop)
    with pytest.warns(UserWarning, match="No space left"):
        cache.store(KEY, PROGRAM, "HloModule")
    assert not (place / f"{KEY}.hlo.gz").exists()
    assert cache.load_cached(KEY) is None


def test_keys_differ_in_every_part_and_in_where_parts_end() -> None:
    keys = {cache.key_of(*parts) for parts in [("a", "b"), ("ab",), ("a", "b", ""), ("b", "a")]}
    assert len(keys) == 4
    assert cache.key_of("a") == cache.key_of("a")


def test_a_changed_source_is_another_key(tmp_path: Path, monkeypatch) -> None:
    """In any folder of the package; other files do not count."""
    package = tmp_path / "scaling"
    (package / "inner").mkdir(parents=True)
    (package / "inner" / "a.py").write_text("1")
    monkeypatch.setattr(cache, "files", lambda name: tmp_path / name)

    def digest() -> str:
        cache.code_digest.cache_clear()
        return cache.code_digest()

    try:
        first = digest()
        (package / "notes.txt").write_text("1")
        assert digest() == first
        (package / "inner" / "a.py").write_text("2")
        second = digest()
        (package / "b.py").write_text("2")
        assert len({first, second, digest()}) == 3
    finally:
        cache.code_digest.cache_clear()


def test_the_sources_of_the_whole_package_count() -> None:
    assert {"meshes", "models"} <= {path.name for path in files("scaling").iterdir()}
    code = "from scaling.compile import cache; print(cache.code_digest())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == cache.code_digest()
