"""Whatever a file or a command line holds: a result or one message; no traceback, no hang, no
memory without bound.

A failure names its cases: `FUZZ=run:0:4711 pytest tests/scaling/fuzz` repeats one of them, and
`FUZZ=run:1:0` draws others (kind, seed, number).
"""

import os
import resource
import shutil
import signal
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from scaling.meshes.errors import InputError
from scaling.run import run_dict
from scaling.run.recipes import recipe
from tests.scaling.comparing.run_folder import write_folder
from tests.scaling.fuzz.kinds import ARGUMENTS, Kind, kinds
from tests.scaling.fuzz.mutations import DEPTH
from tests.scaling.run.test_run import FULL

NAMES = (
    *("run", "cluster", "accelerator", "calibration", "config", "hlo", "safetensors", "index"),
    *("metrics", "testbed", "arguments", "checkpoint", "arrays", "program"),
    *("predicted", "measured", "data", "tokenizer", "tokenizer_config", "written", "sums"),
    *("profile", "trace"),
)
REFUSED = ("index", "config")  # its file is not there; one has layers that no model here has
FEW, MANY, PART = 10, 10_000, 1_000  # cases of a kind: fast, in the long tier, of one test there
SECONDS = 20  # of processor time that one input may take
BYTES = 2 * 2**30  # of memory that one input may take on top
STATUS = Path("/proc/self/statm")  # Linux: pages of address space, first


@pytest.fixture(scope="module")
def by_name(tmp_path_factory, hand_priced, toy) -> dict[str, Kind]:
    runs = [FULL, *(run_dict(recipe(name)) for name in ("tiny", "tiny-moe", "llama3-8b"))]
    place = tmp_path_factory.mktemp("run")
    write_folder(place, toy(mesh={"fsdp": 4, "tensor": 2}), hand_priced, recorded_steps=[6, 9])
    return dict(kinds(runs, place, tmp_path_factory.mktemp("examples")))


class TooLong(BaseException):
    """Of no kind that a reader of files handles, as TimeoutError is, an OSError."""


def stop(*_: object) -> None:
    raise TooLong(f"more than {SECONDS} s of processor time")


@contextmanager
def bounded() -> Iterator[None]:
    """TooLong or MemoryError for what takes more than one input may."""
    former = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, stop)
    if STATUS.exists():
        used = int(STATUS.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, former[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, former)
        signal.signal(signal.SIGPROF, before)


def faults(kind: Kind, name: str, seed: int, numbers: range, folder: Path) -> dict[str, str]:
    """The place of each fault in the sources, with the first case that found it."""
    found: dict[str, str] = {}
    path = folder / kind.name
    if kind.beside:
        shutil.copytree(kind.beside, folder, dirs_exist_ok=True)
    for number in numbers:
        path.write_bytes(kind.draw(Random(f"{name}:{seed}:{number}")))
        try:
            with bounded(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kind.read(path)
        except InputError:
            pass
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)
            ours = [f for f in frames if "tests" not in Path(f.filename).parts] or frames
            ours = [f for f in ours if "site-packages" not in f.filename] or ours
            place = f"{ours[-1].filename}:{ours[-1].lineno} {type(error).__name__}: {error!s:.200}"
            found.setdefault(place.split("Error:")[0], f"{name}:{seed}:{number} {place}")
    return found


def check(by_name, name: str, seed: int, numbers: range, folder: Path, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    found = faults(by_name[name], name, seed, numbers, folder)
    assert not found, "\n".join(["", *found.values()])


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_input_is_read_or_refused(by_name, name, tmp_path, monkeypatch):
    chosen, _, rest = os.environ.get("FUZZ", "").partition(":")
    if chosen and chosen != name:
        pytest.skip(f"FUZZ={os.environ['FUZZ']}")
    seed, number = map(int, rest.split(":")) if chosen else (0, 0)
    check(
        by_name, name, seed, range(number, number + (1 if chosen else FEW)), tmp_path, monkeypatch
    )


# Orbax closes its event loop before all is done that a damaged array began: uvloop says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, MANY, PART))
@pytest.mark.parametrize("name", NAMES)
def test_ten_thousand_damaged_inputs(by_name, name, first, tmp_path, monkeypatch):
    check(by_name, name, 0, range(first, first + PART), tmp_path, monkeypatch)


def test_undamaged_examples_are_read(by_name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sorted(by_name) == sorted(NAMES)
    for name, kind in by_name.items():
        folder = tmp_path / name
        shutil.copytree(kind.beside, folder) if kind.beside else folder.mkdir()
        for example in kind.examples[:2] if name not in REFUSED else ():
            (folder / kind.name).write_bytes(kind.write(example) if kind.write else example)
            kind.read(folder / kind.name)
    assert ARGUMENTS


def test_a_reader_that_handles_errors_of_files_is_stopped_too():
    def busy():
        with bounded():
            signal.setitimer(signal.ITIMER_PROF, 0.01)  # s
            try:
                while True:
                    pass
            except OSError:
                raise InputError("cannot be read") from None

    with pytest.raises(TooLong):
        busy()


DEEP, DIGITS = b"[" * DEPTH, b"9" * 5000  # beyond the recursion limit, and int's 4,300 digits
# What once ended in a traceback, a hang or without memory: a change of an example, or the whole.
ONCE = {
    "run": [b'{"model": {"config": "/dev/zero"}, "batch": {"global_batch": 8, "seq_len": 32}}'],
    "cluster": [
        b"a = " + DEEP,
        b"a = " + DIGITS,
        (b'leaf_nodes" = {"value" = 32', b'leaf_nodes" = {"value" = inf'),
    ],
    "accelerator": [
        b"a = " + DEEP,
        (b'{"value" = 700,', b'{"value" = "hot",'),
        (b'"cores" = {"value" = 132', b'"cores" = {"value" = inf'),
    ],
    "hlo": [(b"calls=%fused", b"calls=%none")],
    "index": [b'{"weight_map": {"a": "../b.safetensors"}}', b'{"weight_map": {"a": "\\ud800"}}'],
    "metrics": [b'{"step": 1}\n' + DEEP + b"\n"],
    "sums": [(b"[9, 7]", b'["9", 7]')],
    "tokenizer": [(b'"merges": [', b'"merges": [["", ""], ')],
    "data": [
        b'{"messages": {"role": "assistant", "content": "b"}}',
        b'{"text": "a"}\n' + DEEP,
        b'{"text": "\xff"}',
    ],
    "tokenizer_config": [
        b"[]",
        b'{"chat_template": "{{ 1 + \'a\' }}"}',
        b'{"chat_template": "{{ ' + DIGITS + b' }}"}',
    ],
    "checkpoint": [(b'"iterator_state"', b'"place"'), (b'"next_index"', b'"index"')],
    "program": [
        (b'"flops"', b'"estimate"'),
        (b"[1, 4096", b"[4096"),
        (b"[1, 4096", b"[0, 4096"),
        (b'"axes": ["fsdp"]', b'"axes": [1]'),
        (b'"bytes": 6', b'"bytes": 0'),
    ],
}


@pytest.mark.parametrize(
    ("name", "change"), [(n, c) for n, changes in ONCE.items() for c in changes]
)
def test_what_once_failed_is_refused(by_name, name, change, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind = by_name[name]
    if kind.beside:
        shutil.copytree(kind.beside, tmp_path, dirs_exist_ok=True)
    text = change
    if isinstance(change, tuple):
        text = kind.write(kind.examples[0]) if kind.write else kind.examples[0]
        assert change[0] in text
        text = text.replace(*change)
    (tmp_path / kind.name).write_bytes(text)
    with pytest.raises(InputError), bounded():
        kind.read(tmp_path / kind.name)
