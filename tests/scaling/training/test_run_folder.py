"""One job at a time writes to a run folder."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack

import jax
import pytest

from scaling.meshes.errors import InputError
from scaling.training.launch import consensus
from scaling.training.launch.consensus import (
    all_processes,
    broadcast_from_first,
    mismatched_processes,
)
from scaling.training.launch.supervisor import RESTARTED
from scaling.training.run_folder import lock
from scaling.training.run_folder.folder import (
    Options,
    check_folder,
    finished_step,
    lock_run_folder,
)
from scaling.training.run_folder.lock import LOCK


@pytest.fixture
def saved(tmp_path):
    """A run folder whose newest checkpoint is of step 8, by its name."""
    (tmp_path / "saved" / "checkpoints" / "step_00000008").mkdir(parents=True)
    return tmp_path / "saved"


def test_folders_that_do_not_fit_the_command_are_refused(saved, tmp_path, monkeypatch):
    unsaved = tmp_path / "unsaved"
    unsaved.mkdir()
    (unsaved / "metrics.jsonl").write_text('{"step": 1}\n')
    file = unsaved / "metrics.jsonl"
    recorded = Options(saved, resume=True, profile=(8, 10))
    for name in ("dangling", "taken"):
        (tmp_path / name).mkdir()
    (tmp_path / "dangling" / "checkpoints").symlink_to(tmp_path / "disk")
    (tmp_path / "taken" / "checkpoints").touch()
    for options, message in (
        (Options(saved), "saved up to step 8.*--resume"),
        (Options(unsaved), "no checkpoint; choose another"),
        (Options(tmp_path / "nowhere", resume=True), "no finished checkpoint"),
        (Options(file), "--run-dir"),
        (Options(file / "run"), "--run-dir"),
        (Options(tmp_path / "dangling"), "checkpoints, a link to .*disk: No such file"),
        (Options(tmp_path / "taken"), "cannot write to .*checkpoints: Not a directory"),
        (recorded, "--record-profile begins at step 8"),
    ):
        with pytest.raises(InputError, match=message):
            check_folder(options)
    assert not (tmp_path / "nowhere").exists()
    monkeypatch.setenv(RESTARTED, "1")
    check_folder(recorded)


@pytest.mark.parametrize(
    ("resume", "steps", "found"), [(True, 8, 8), (True, 9, None), (False, 8, None)]
)
def test_only_a_resumed_run_that_has_all_its_steps_is_finished(saved, resume, steps, found):
    """This is known without reading its checkpoint."""
    assert finished_step(Options(saved, resume), steps) == found


# The lock

HOLDS = """
import sys, time
from pathlib import Path
from scaling.training.run_folder.folder import Options, lock_run_folder
with lock_run_folder(Options(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def hasty(monkeypatch):
    """Nobody waits long for another to end."""
    monkeypatch.setattr(lock, "SAME_HOST_WAIT", 0.3)
    monkeypatch.setattr(lock, "OTHER_HOST_WAIT", 0.6)


def test_a_second_writer_is_told_who_the_first_is(hasty, tmp_path, capsys):
    folder = tmp_path / "runs" / "new"
    with lock_run_folder(Options(folder)):
        with pytest.raises(InputError, match=f"another run, process {os.getpid()} on .*wait until"):
            with lock_run_folder(Options(folder)):
                raise AssertionError("both write")
        (folder / LOCK).write_bytes(b"\xff\x1b[2J")
        with pytest.raises(InputError, match=r"another run, \ufffd\\x1b\[2J"):
            lock_run_folder(Options(folder)).__enter__()
    assert f"waiting for process {os.getpid()}" in capsys.readouterr().err
    with lock_run_folder(Options(folder)):
        pass


def test_run_folders_that_share_their_checkpoints_have_one_writer(hasty, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir()
    with lock_run_folder(Options(first)):
        (second / "checkpoints").symlink_to(first / "checkpoints")
        with pytest.raises(InputError, match="second/checkpoints is being written by another run"):
            lock_run_folder(Options(second)).__enter__()
    with lock_run_folder(Options(second)):
        with pytest.raises(InputError, match="first/checkpoints is being written by another run"):
            lock_run_folder(Options(first)).__enter__()


def test_checkpoints_that_link_to_their_own_run_folder_are_locked_once(hasty, tmp_path):
    (tmp_path / "checkpoints").symlink_to(tmp_path)
    with lock_run_folder(Options(tmp_path)) as check:
        check()


def test_a_second_writer_goes_on_when_the_first_ends_soon(tmp_path):
    with ExitStack() as first, ThreadPoolExecutor() as other:
        first.enter_context(lock_run_folder(Options(tmp_path)))

        def second():
            with lock_run_folder(Options(tmp_path)):
                return "wrote"

        waiting = other.submit(second)
        assert not wait([waiting], timeout=0.5).done
        first.close()
        assert waiting.result(timeout=600) == "wrote"


def test_a_second_writer_finds_the_run_that_the_first_one_wrote_meanwhile(tmp_path):
    """It had found an empty folder when it was started."""
    with ExitStack() as first, ThreadPoolExecutor() as other:
        first.enter_context(lock_run_folder(Options(tmp_path)))
        waiting = other.submit(lock_run_folder(Options(tmp_path)).__enter__)
        (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
        first.close()
        with pytest.raises(InputError, match="already holds a run"):
            waiting.result(timeout=600)


def test_a_lock_that_was_deleted_keeps_nobody_out(tmp_path):
    """Who waited for it then takes the new one, and waits for whoever has that."""
    options = Options(tmp_path)
    with ExitStack() as first, ThreadPoolExecutor() as other:
        first.enter_context(lock_run_folder(options))
        second = lock_run_folder(options)
        waiting = other.submit(second.__enter__)
        assert not wait([waiting], timeout=0.5).done
        for place in (tmp_path, tmp_path / "checkpoints"):
            (place / LOCK).unlink()
        with lock_run_folder(options) as check:
            first.close()
            assert not wait([waiting], timeout=0.5).done
            check()
        waiting.result(timeout=600)()


def move(folder):
    return folder.rename(folder.with_name("moved"))


def move_and_make_anew(folder):
    move(folder)
    folder.mkdir()
    (folder / LOCK).touch()


@pytest.mark.parametrize("change", [shutil.rmtree, move, move_and_make_anew])
def test_a_folder_that_was_moved_or_deleted_is_noticed_before_the_next_write(tmp_path, change):
    with lock_run_folder(Options(tmp_path / "run")) as check:
        check()
        change(tmp_path / "run")
        with pytest.raises(InputError, match="run, or .lock in it, was moved or deleted"):
            check()


def test_links_that_a_run_would_write_through_are_refused(tmp_path):
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "run" / "process_1").mkdir(parents=True)
    for name in (LOCK, "metrics.jsonl", "process_1/metrics.jsonl", "process_2", "tokenizer"):
        link = tmp_path / "run" / name
        link.symlink_to(tmp_path / "theirs")
        with pytest.raises(InputError, match=f"{link} is a link to {tmp_path / 'theirs'}"):
            check_folder(Options(tmp_path / "run"))
        link.unlink()
    (tmp_path / "linked").symlink_to(tmp_path / "run")
    check_folder(Options(tmp_path / "linked"))
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_a_writer_that_was_killed_holds_nothing(hasty, tmp_path):
    writer = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"process {writer.pid} on"):
            lock_run_folder(Options(tmp_path)).__enter__()
    finally:
        writer.kill()
        writer.communicate()
    with lock_run_folder(Options(tmp_path)):
        assert f"process {os.getpid()} on" in (tmp_path / LOCK).read_text()


def test_other_processes_hear_what_the_first_one_found(tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(consensus, "all_processes", lambda mine: False)
    with pytest.raises(InputError, match="process 0 cannot use"):
        lock_run_folder(Options(tmp_path)).__enter__()
    assert not (tmp_path / LOCK).exists()


def test_a_lock_that_cannot_be_made_is_bad_input(tmp_path):
    (tmp_path / LOCK).mkdir()
    with pytest.raises(InputError, match="cannot be written to .*Is a directory"):
        lock_run_folder(Options(tmp_path)).__enter__()


@pytest.mark.parametrize("verdict", [True, False])
def test_a_process_alone_agrees_with_itself(verdict):
    assert broadcast_from_first(verdict) == verdict and all_processes(verdict) is verdict
    assert mismatched_processes([1, 2]) == []
