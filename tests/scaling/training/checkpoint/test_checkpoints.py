"""A checkpoint is whole or not there, fits any mesh, and costs the step that follows it nothing."""

import errno
import itertools
import json
import logging
import os
import resource
import shutil
import threading
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from scaling.meshes.errors import InputError
from scaling.training.checkpoint import checkpoints as module
from scaling.training.checkpoint.checkpoints import CheckpointError, Checkpoints
from scaling.training.checkpoint.read import place_in_data
from scaling.training.run_folder.checksums import RECORDS, find_damage, write_checksums
from scaling.training.run_folder.steps import TEMPORARY, interrupted_steps, latest_step, own_steps

RECORD = RECORDS.replace("*", "0")  # of the first process
PLACE, RUN = {"position": {"next_index": 7}}, {"name": "toy", "train": {"learning_rate": 3e-4}}
SPECS = {"wq": PartitionSpec("fsdp", "tensor"), "norm": PartitionSpec("fsdp")}


def make_mesh(fsdp, tensor):
    devices = jax.devices()[: fsdp * tensor]
    return jax.make_mesh((fsdp, tensor), ("fsdp", "tensor"), devices=devices)


def make_state(mesh, seed=0):
    """Parameters, AdamW state and step, as a trainer holds them."""
    shapes = {"wq": (96, 48), "norm": (96,)}
    values = {
        name: jax.random.normal(jax.random.key(seed + i), shape, jnp.float32)
        for i, (name, shape) in enumerate(shapes.items())
    }
    parameters = {n: jax.device_put(v, NamedSharding(mesh, SPECS[n])) for n, v in values.items()}
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    replicated = NamedSharding(mesh, PartitionSpec())
    with jax.set_mesh(mesh):
        return {
            "parameters": {"layers": parameters},
            "half": jax.device_put(values["norm"].astype(jnp.bfloat16), replicated),
            "optimizer": optimizer.init({"layers": parameters}),
            "step": jax.device_put(jnp.int32(seed), replicated),
        }


def abstract(state):
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )


def assert_same_bits(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.fixture
def mesh():
    return make_mesh(4, 2)


@pytest.fixture
def checkpoints(tmp_path):
    with Checkpoints(tmp_path / "checkpoints", keep=2) as checkpoints:
        yield checkpoints


def test_a_checkpoint_restores_bit_for_bit_on_other_meshes(checkpoints, mesh):
    state = make_state(mesh)
    with jax.set_mesh(mesh):
        checkpoints.save(3, state, PLACE, RUN)
    for other in (mesh, make_mesh(2, 4), make_mesh(3, 1), make_mesh(1, 1)):
        target = abstract(make_state(other, seed=5))
        with jax.set_mesh(other):
            restored, place, run = checkpoints.restore(target)
        assert_same_bits(restored, state)
        assert (place, run) == (PLACE, RUN)
        shardings = jax.tree.map(lambda x: x.sharding, restored)
        assert shardings == jax.tree.map(lambda x: x.sharding, target)


def test_the_arrays_may_be_donated_as_soon_as_save_returns(checkpoints, mesh):
    state = make_state(mesh)
    expected = jax.tree.map(np.array, state)
    overwrite = jax.jit(lambda s: jax.tree.map(lambda x: x * 0 - 1, s), donate_argnums=0)
    with jax.set_mesh(mesh):
        checkpoints.save(1, state, PLACE, RUN)
        jax.block_until_ready(overwrite(state))
    for leaf in jax.tree.leaves(state):
        if not leaf.is_deleted():
            leaf.delete()
    target = abstract(make_state(mesh))
    assert_same_bits(checkpoints.restore(target)[0], expected)


def test_saves_in_quick_succession_lose_nothing_and_the_newest_are_kept(checkpoints, mesh):
    states = {step: make_state(mesh, seed=step) for step in (10, 20, 30)}
    checkpoints.save(30, make_state(mesh), PLACE, RUN)  # is replaced
    for step, state in states.items():
        checkpoints.save(step, state, {"position": step}, RUN)
    checkpoints.wait()
    assert checkpoints.steps() == [20, 30]
    for step in (30, 20):
        restored, place, _ = checkpoints.restore(abstract(states[step]))
        assert_same_bits(restored, states[step])
        assert place == {"position": step}
        shutil.rmtree(checkpoints.folder / f"step_{step:08d}")


def test_save_returns_before_the_files_are_summed(checkpoints, mesh, monkeypatch):
    may_finish = threading.Event()
    write = lambda *given: may_finish.wait(600) and write_checksums(*given)
    monkeypatch.setattr(module, "write_checksums", write)
    checkpoints.save(1, make_state(mesh), PLACE, RUN)
    record = checkpoints.folder / "step_00000001" / RECORD
    assert not record.exists()
    may_finish.set()
    checkpoints.wait()
    assert record.exists() and checkpoints.latest() == 1


def test_folders_that_the_run_did_not_write_are_kept(checkpoints, mesh):
    """Whatever their names; one that is in the way is moved, with a warning."""
    state, folder = make_state(mesh), checkpoints.folder
    checkpoints.save(1, state, PLACE, RUN)
    checkpoints.wait()
    theirs = [
        *("step_notes", "step_00000001_before_surgery", "step_00000001.deleted", "step_00000000"),
        *(
            "step_00000003.orbax-checkpoint-tmp",
            "step_00000004",
            "step_00000007.orbax-checkpoint-tmp",
        ),
    ]
    for name in theirs:
        shutil.copytree(folder / "step_00000001", folder / name)
        (folder / name / "notes").write_text(name)
    (folder / "step_link").symlink_to(folder / "step_notes")
    for step in (2, 3, 4, 5):
        with warnings.catch_warnings(record=True, action="always") as caught:
            checkpoints.save(step, state, PLACE, RUN)
            checkpoints.wait()
        said = [str(warning.message) for warning in caught]
        assert said == [
            f"{folder / name}, which this run did not write, is now {name}.moved"
            for name in theirs
            if name.startswith(f"step_{step:08}") and step in (3, 4)
        ]
    assert (folder / "step_link").is_symlink()
    assert sorted(path.parent.name for path in folder.glob("*/notes")) == sorted(
        name + ".moved" * (name[12:13] in ("3", "4")) for name in [*theirs, "step_link"]
    )
    assert checkpoints.steps() == [0, 4, 5]


def test_a_folder_in_the_place_of_one_of_the_run_s_own_is_kept(checkpoints, mesh, tmp_path):
    for folder in (checkpoints.folder, tmp_path / "other"):
        with Checkpoints(folder) as each:
            each.save(1, make_state(mesh), PLACE, RUN)
    shutil.rmtree(checkpoints.folder / "step_00000001")
    shutil.copytree(tmp_path / "other" / "step_00000001", checkpoints.folder / "step_00000001")
    for step in (2, 3, 4):
        checkpoints.save(step, make_state(mesh), PLACE, RUN)
    checkpoints.wait()
    assert checkpoints.steps() == [1, 3, 4]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"step_00000001": "\\ud800"}', "[]", "{"])
def test_where_the_record_cannot_be_read_nothing_is_the_run_s_own(checkpoints, text):
    (checkpoints.folder / "step_00000001").mkdir(parents=True)
    (checkpoints.folder / "step_00000001" / "theirs").write_text("theirs")
    (checkpoints.folder / ".written").write_text(text)
    assert own_steps(checkpoints.folder) == []


def test_the_place_in_the_data_is_read_by_an_absolute_path(tmp_path, monkeypatch):
    """Orbax logs a page of errors about another one."""
    said = lambda path: SimpleNamespace(custom_metadata={"iterator_state": {"of": path}})
    monkeypatch.setattr(module.ocp, "metadata", said)
    monkeypatch.chdir(tmp_path)
    assert place_in_data(Path("step_00000001")) == {"of": tmp_path / "step_00000001"}


class Killed(BaseException):
    """In place of the end of the process."""


def die(*given, **named):
    raise Killed


def die_with_half_a_folder(path, *given, **named):
    (path.with_name(path.name + TEMPORARY) / "state").mkdir(parents=True)
    raise Killed


@pytest.mark.parametrize(
    ("place", "death", "left"),
    [
        ((module.ocp, "save_checkpointables_async"), die, [1]),
        ((module.ocp, "save_checkpointables_async"), die_with_half_a_folder, [1]),
        ((module, "write_checksums"), die, [1, 2]),
        ((shutil, "rmtree"), die, [2]),
    ],
    ids=["recorded", "begun", "renamed", "deleting"],
)
def test_what_a_killed_process_left_is_cleared_by_the_next_save(
    tmp_path, mesh, monkeypatch, place, death, left
):
    state = make_state(mesh)
    with Checkpoints(tmp_path, keep=1) as killed, monkeypatch.context() as patch:
        killed.save(1, state, PLACE, RUN)
        killed.wait()
        patch.setattr(*place, death)
        with pytest.raises(Killed):
            killed.save(2, state, PLACE, RUN)
            killed.wait()
    with Checkpoints(tmp_path, keep=1) as others:
        assert others.steps() == left
        assert interrupted_steps(tmp_path) == [2] * (death is die_with_half_a_folder)
        with nullcontext() if place[1] != "write_checksums" else pytest.warns(match="lacks"):
            assert_same_bits(others.restore(abstract(state))[0], state)
        others.save(3, state, PLACE, RUN)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".written", "step_00000003"]


def flip_a_bit(path):
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)


DAMAGE = {
    "is missing": lambda path: path.unlink(),
    "bytes instead of": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "CRC-32": flip_a_bit,
}


def files_of(checkpoints, step):
    """Files of a checkpoint, largest (the arrays) last."""
    found = (checkpoints.folder / f"step_{step:08d}").rglob("*")
    files = [path for path in found if path.is_file() and path.name != RECORD]
    return sorted(files, key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("words", DAMAGE)
def test_whatever_file_is_damaged_the_checkpoint_before_is_used_with_a_message(
    checkpoints, mesh, words
):
    """Arrays, their names and shapes, the place in the data, the run description, the sums."""
    good, bad = make_state(mesh, 1), make_state(mesh, 2)
    checkpoints.save(1, good, PLACE, RUN)
    checkpoints.save(2, bad, PLACE, RUN)
    checkpoints.wait()
    newest = checkpoints.folder / "step_00000002"
    record = [] if words == "is missing" else [newest / RECORD]
    for path in [*record, *files_of(checkpoints, 2)]:
        contents = path.read_bytes()
        if not contents:
            continue
        assert find_damage(newest) is None
        DAMAGE[words](path)
        with Checkpoints(checkpoints.folder) as others, pytest.warns(UserWarning) as caught:
            restored, _, _ = others.restore(abstract(good))
        assert_same_bits(restored, good)
        (said,) = (str(warning.message) for warning in caught)
        assert said.startswith(f"checkpoint {newest} is damaged: ")
        assert words in said or path.name == RECORD
        assert said.endswith("; going back to step 1")
        path.write_bytes(contents)


def test_a_damaged_checkpoint_goes_with_the_next_save(checkpoints, mesh):
    for step in (1, 2):
        checkpoints.save(step, make_state(mesh, step), PLACE, RUN)
    checkpoints.wait()
    flip_a_bit(files_of(checkpoints, 2)[-1])
    with pytest.warns(UserWarning, match="step_00000002 is damaged"):
        checkpoints.restore(abstract(make_state(mesh)))
    assert checkpoints.latest() == 1
    checkpoints.save(3, make_state(mesh), PLACE, RUN)
    checkpoints.wait()
    assert checkpoints.steps() == [1, 3]


def test_each_process_sums_the_files_that_it_wrote_and_checks_a_share_of_all(tmp_path):
    for name in ("state/d/a", "state/ocdbt.process_1/d/b", "state/array_metadatas/process_1", "c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for process in range(2):
        write_checksums(tmp_path, process)
    first, second = (
        set(json.loads((tmp_path / f"checksums_{i}.json").read_text())) for i in range(2)
    )
    assert first == {"state/d/a", "c"}
    assert second == {"state/ocdbt.process_1/d/b", "state/array_metadatas/process_1"}
    assert [find_damage(tmp_path, i, 2) for i in range(2)] == [None, None]
    (tmp_path / "state/ocdbt.process_1/d/b").write_text("x")
    findings = [find_damage(tmp_path, i, 2) for i in range(2)]
    assert sum(words is not None for words in findings) == 1


def test_a_checkpoint_that_no_process_summed_is_used_unchecked_and_none_is_refused(
    checkpoints, mesh
):
    """The job ended between Orbax's last rename and the sums."""
    with pytest.raises(InputError, match=f"no checkpoint .* in {checkpoints.folder}.*--resume"):
        checkpoints.restore(abstract(make_state(mesh)))
    state = make_state(mesh)
    checkpoints.save(1, state, PLACE, RUN)
    checkpoints.wait()
    (checkpoints.folder / "step_00000001" / RECORD).unlink()
    with pytest.warns(UserWarning, match="lacks checksums_0.json, .*used unchecked"):
        assert_same_bits(checkpoints.restore(abstract(state))[0], state)


def test_the_latest_step_is_read_from_names_alone(tmp_path):
    assert latest_step(tmp_path) is None
    for name in ("step_00000003", "step_00000020", "step_00000021.orbax-checkpoint-tmp", "step_9"):
        (tmp_path / name).mkdir()
    assert latest_step(tmp_path) == 20


def test_only_orbax_is_silenced_in_the_log_of_absl(tmp_path, caplog):
    log = logging.getLogger("absl")
    with Checkpoints(tmp_path), caplog.at_level(logging.WARNING, logger="absl"):
        log.warning("of another library")
        record = logging.LogRecord("absl", logging.ERROR, "/usr/orbax/a.py", 1, "", (), None)
        log.handle(record)
    assert [record.message for record in caplog.records] == ["of another library"]
    assert log.level < logging.CRITICAL


def test_if_every_checkpoint_is_damaged_the_message_lists_them(checkpoints, mesh):
    state = make_state(mesh)
    for step in (1, 2):
        checkpoints.save(step, state, PLACE, RUN)
    checkpoints.wait()
    for step in (1, 2):
        files_of(checkpoints, step)[-1].unlink()
    with (
        pytest.warns(UserWarning, match="is damaged"),
        pytest.raises(InputError, match=r"all of steps \[2, 1\] are damaged"),
    ):
        checkpoints.restore(abstract(state))


def test_a_checkpoint_of_another_model_names_the_first_leaf_that_differs(checkpoints, mesh):
    state = make_state(mesh)
    checkpoints.save(1, state, PLACE, RUN)
    target = abstract(state)
    wider = jax.ShapeDtypeStruct((96, 96), jnp.float32)
    others = {
        r"parameters/layers/wq is float32\[96, 48\] there and float32\[96, 96\] here": target
        | {"parameters": {"layers": target["parameters"]["layers"] | {"wq": wider}}},
        r"half is bfloat16\[96\] there and float32\[96\] here": target
        | {"half": jax.ShapeDtypeStruct((96,), jnp.float32)},
        "extra is missing there": target | {"extra": wider},
        "step is int32.* there and missing here": {k: v for k, v in target.items() if k != "step"},
    }
    for message, other in others.items():
        with pytest.raises(InputError, match=message):
            checkpoints.restore(other)


def test_a_disk_without_room_is_noticed_before_anything_is_written(checkpoints, mesh, monkeypatch):
    state = make_state(mesh)
    checkpoints.save(1, state, PLACE, RUN)
    checkpoints.wait()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(99, 94, 5))
    needed = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    message = rf"step 2 not saved .*needs {needed:,} bytes; 5 bytes are free.*step 1 is the last"
    with pytest.raises(CheckpointError, match=message):
        checkpoints.save(2, state, PLACE, RUN)
    assert checkpoints.steps() == [1]


def test_a_write_that_fails_in_the_background_leaves_the_last_checkpoint_whole(checkpoints, mesh):
    """A limit on the size of a file makes the system refuse the write, as a full disk would."""
    state = make_state(mesh)
    checkpoints.save(1, state, PLACE, RUN)
    checkpoints.wait()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limit[1]))
        checkpoints.save(2, state, PLACE, RUN)
        with pytest.raises(CheckpointError, match="step 2 not saved.*step 1 is the last"):
            checkpoints.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    late = checkpoints.folder / f"step_00000002{TEMPORARY}" / "state"
    late.mkdir(parents=True, exist_ok=True)  # as a thread of Orbax that still writes may make it
    assert checkpoints.steps() == [1]
    assert_same_bits(checkpoints.restore(abstract(state))[0], state)
    checkpoints.save(3, state, PLACE, RUN)
    checkpoints.wait()
    names = sorted(path.name for path in checkpoints.folder.iterdir())
    assert names == [".written", "step_00000001", "step_00000003"]


def test_a_save_whose_folder_is_moved_leaves_nothing_in_its_place(tmp_path, mesh, monkeypatch):
    """Orbax makes folders that have gone anew."""
    folder = tmp_path / "run" / "checkpoints"
    folder.parent.mkdir()

    def moved(path, process):
        folder.parent.rename(tmp_path / "moved")
        (path.with_name(path.name + TEMPORARY) / "state").mkdir(parents=True)
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))

    monkeypatch.setattr(module, "write_checksums", moved)
    with pytest.raises(CheckpointError, match="No such file"), Checkpoints(folder) as checkpoints:
        checkpoints.save(1, make_state(mesh), PLACE, RUN)
    assert [path.name for path in tmp_path.iterdir()] == ["moved"]
    assert latest_step(tmp_path / "moved" / "checkpoints") == 1


def test_a_full_disk_in_the_background_is_called_that_by_the_next_save(
    checkpoints, mesh, monkeypatch
):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_checksums", full)
        checkpoints.save(1, make_state(mesh), PLACE, RUN)
        with pytest.raises(CheckpointError, match="the disk is full; .* holds no checkpoint"):
            checkpoints.save(2, make_state(mesh), PLACE, RUN)
    checkpoints.save(2, make_state(mesh), PLACE, RUN)
    checkpoints.wait()
    assert checkpoints.steps() == [2]


def test_a_folder_that_cannot_be_written_ends_save_itself_and_no_thread_goes_on(
    checkpoints, mesh, monkeypatch
):
    """Threads of Orbax would wait for the folder, and Python at its end for the threads."""
    make = os.mkdir

    def refuse(path, *given, **named):
        if "step_" in str(path):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        make(path, *given, **named)

    monkeypatch.setattr(os, "mkdir", refuse)
    before = {*threading.enumerate()}
    with pytest.raises(
        CheckpointError, match=f"Read-only.*1{TEMPORARY}.* Make .* writable; .* holds no"
    ):
        checkpoints.save(1, make_state(mesh), PLACE, RUN)
    idle = {thread for thread in threading.enumerate() if thread.name.startswith("asyncio_")}
    assert {*threading.enumerate()} - idle <= before


def test_a_clock_that_is_set_forward_ends_no_save(checkpoints, mesh, monkeypatch):
    """By an hour whenever it is read: more than Orbax's limits of 5 and 20 minutes."""
    hours = itertools.count()
    monkeypatch.setattr(time, "time", lambda: 1.7e9 + 3600.0 * next(hours))
    checkpoints.save(1, make_state(mesh), PLACE, RUN)
    checkpoints.wait()
    assert checkpoints.latest() == 1


def test_a_disk_that_does_not_answer_is_given_up(checkpoints, mesh, monkeypatch):
    monkeypatch.setattr(module, "LIMIT", 0)
    monkeypatch.setattr(module, "write_checksums", lambda *given: None)
    checkpoints.save(1, make_state(mesh), PLACE, RUN)
    with pytest.raises(CheckpointError, match="step 1 not saved .* took more than 0 minutes"):
        checkpoints.wait()


def test_keeping_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(InputError, match="keep_checkpoints is 0"):
        Checkpoints(tmp_path, keep=0)


def test_a_save_makes_no_run_folder_anew_where_one_was_moved(tmp_path):
    (tmp_path / "run").mkdir()
    with Checkpoints(tmp_path / "run" / "checkpoints") as checkpoints:
        (tmp_path / "run").rename(tmp_path / "moved")
        with pytest.raises(CheckpointError, match="run is gone: if it was moved"):
            checkpoints.save(1, {"a": jnp.zeros(2)}, PLACE, RUN)
    assert not (tmp_path / "run").exists()
