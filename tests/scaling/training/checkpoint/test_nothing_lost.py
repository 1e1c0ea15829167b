"""An older checkpoint goes when the disk has the newer one and has given it back, not before."""

import os
import shutil
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scaling.meshes.errors import InputError
from scaling.training.checkpoint import checkpoints as module
from scaling.training.checkpoint.checkpoints import CheckpointError, Checkpoints
from scaling.training.run_folder import checksums, steps
from scaling.training.run_folder.checksums import unsummed, write_checksums
from scaling.training.run_folder.folder import check_path


def state_of(step):
    """The larger array has a file of its own."""
    return {"w": jnp.arange(5000) * step, "step": jnp.int32(step)}


def save(checkpoints, step):
    checkpoints.save(step, state_of(step), {"next": step}, {"name": "toy"})
    checkpoints.wait()


def restored_step(folder, keep=1):
    """The step that a new process goes on from; its arrays are right."""
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    wanted = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), state_of(0)
    )
    with Checkpoints(folder, keep) as checkpoints:
        state, place, _ = checkpoints.restore(wanted)
    step = int(state["step"])
    assert place == {"next": step} and np.array_equal(state["w"], state_of(step)["w"])
    return step


@pytest.fixture
def first(tmp_path):
    """Checkpoints that keep one, of step 1."""
    with Checkpoints(tmp_path / "checkpoints", keep=1) as checkpoints:
        save(checkpoints, 1)
        yield checkpoints


def test_every_file_and_folder_is_synced_then_the_sums_then_the_older_is_deleted(
    first, monkeypatch
):
    done, fsync, replace, rmtree = [], os.fsync, Path.replace, shutil.rmtree

    def record(what, path, call, *given, **named):
        done.append((what, Path(path)))
        return call(*given, **named)

    opened = lambda descriptor: os.readlink(f"/proc/self/fd/{descriptor}")
    monkeypatch.setattr(os, "fsync", lambda fd: record("sync", opened(fd), fsync, fd))
    monkeypatch.setattr(Path, "replace", lambda p, to: record("name", to, replace, p, to))
    monkeypatch.setattr(
        steps.shutil,
        "rmtree",
        lambda p, **named: record("delete", p, rmtree, p, **named),
    )
    save(first, 2)
    step = first.folder / "step_00000002"
    named, deleted = (
        next(n for n, (what, path) in enumerate(done) if what == kind and name in path.name)
        for kind, name in (("name", "checksums_0.json"), ("delete", "step_00000001"))
    )
    synced = [
        {path for what, path in part if what == "sync"} for part in (done[:named], done[:deleted])
    ]
    files = {path for path in step.rglob("*") if path.name != "checksums_0.json"}
    assert files | {step, first.folder, step / ".checksums_0.json.draft"} <= synced[0]
    assert ("sync", step) in done[named:deleted]
    assert len([path for path in files if path.is_file()]) >= 6 and first.steps() == [2]


def damage_on_disk(file):
    if file.name == "_METADATA":
        file.write_bytes(file.read_bytes()[:-1] + b"?")


def forget_arrays(folder, process):
    (folder / "state" / "manifest.ocdbt").unlink()
    write_checksums(folder, process)


@pytest.mark.parametrize(
    ("place", "harm", "words"),
    [
        ((checksums, "_drop_from_cache"), damage_on_disk, "read back differs: _METADATA"),
        ((module, "write_checksums"), forget_arrays, "does not find again .* is missing there"),
    ],
)
def test_a_checkpoint_that_does_not_come_back_from_the_disk_deletes_no_other(
    first, monkeypatch, place, harm, words
):
    with monkeypatch.context() as patch:
        patch.setattr(*place, harm)
        with pytest.raises(CheckpointError, match=f"{words}.*checkpoint of step 1 is the last"):
            save(first, 2)
    assert restored_step(first.folder) == 1
    save(first, 3)
    assert restored_step(first.folder) == 3


def test_the_first_process_waits_for_the_sums_of_all(tmp_path, monkeypatch):
    for name in ("state/ocdbt.process_0/d/a", "state/ocdbt.process_1/d/b", "c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert unsummed(tmp_path) == [0, 1] and unsummed(tmp_path, 3) == [0, 1, 2]
    write_checksums(tmp_path, 0)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(TimeoutError, match=r"processes \[1\] have not"):
        module._await_others(tmp_path, time.monotonic() - 1)
    monkeypatch.setattr(time, "sleep", lambda seconds: write_checksums(tmp_path, 1))
    module._await_others(tmp_path, time.monotonic() + 60)
    assert unsummed(tmp_path, 2) == []


# What a power cut leaves of files that were not synced
NEVER_SYNCED_BY_ORBAX = (
    "_CHECKPOINT_METADATA",
    "state/_METADATA",
    "orbax.checkpoint",
    "commit_success.txt",
    "state/array_metadatas/process_0",
)


@pytest.mark.parametrize(
    "emptied",
    [
        *((name,) for name in NEVER_SYNCED_BY_ORBAX),
        NEVER_SYNCED_BY_ORBAX,
        ("state/ocdbt.process_0/d/*",),
        ("state/d/*", "state/manifest.ocdbt"),
    ],
)
def test_a_step_without_sums_that_cannot_be_read_is_damaged(tmp_path, emptied, capfd):
    """The power was cut between Orbax's last rename and the sums; the one before is whole."""
    folder = tmp_path / "checkpoints"
    with Checkpoints(folder, keep=2) as checkpoints:
        for step in (1, 2):
            save(checkpoints, step)
    newest = folder / "step_00000002"
    (newest / "checksums_0.json").unlink()
    for name in emptied:
        for path in newest.glob(name):
            os.truncate(path, 0)
    with pytest.warns(UserWarning) as caught:
        found = restored_step(folder, keep=2)
    said = [str(warning.message) for warning in caught]
    assert said[0].startswith(f"checkpoint {newest} lacks checksums_0.json")
    if {*emptied} <= {"orbax.checkpoint", "commit_success.txt"}:  # of which nothing is read
        assert (found, len(said)) == (2, 1)
    else:
        assert found == 1 and said[1].endswith("going back to step 1")
    assert "Traceback" not in capfd.readouterr().err


# Names of folders

NAMES = (
    *(
        "plain",
        "{b}",
        "a b",
        "s3:",
        "#",
        "%20",
        "|",
        "x::y",
        "@",
        "~",
        "$HOME",
        "\x01",
        "é",
        "x\ny",
    ),
    *("[a]", "[", "a*", "**", "q?", "a\\b", "gs:", "logs:", "\udcff", "x" * 255, "x" * 256, "\0"),
)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_run_folder_of_any_name_is_refused_at_once_or_restored_right(tmp_path, name):
    folder = tmp_path / name / "checkpoints"
    try:
        check_path(folder.parent)
    except InputError as error:
        assert "cannot hold checkpoints: " in str(error) and "\n" not in str(error)
        with pytest.raises(InputError, match="cannot hold checkpoints"):
            Checkpoints(folder)
        assert name not in NAMES[:14]
        return
    folder.parent.mkdir()
    (tmp_path / "ab").mkdir()
    with Checkpoints(folder, keep=1) as checkpoints:
        save(checkpoints, 1)
    assert restored_step(folder) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "ab"])
    assert name not in NAMES[14:] or name == "x" * 255


@pytest.mark.parametrize("parts", [("gs", "bucket"), ("s3", "bucket", "run"), ("deep",) * 800])
def test_a_path_that_the_library_takes_for_another_is_refused(parts):
    with pytest.raises(InputError, match="cannot hold checkpoints: .*ln -s"):
        check_path(Path("/", *parts))
