"""A resumed run is the uninterrupted one, bit for bit; on another mesh, to rounding."""

import json
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.run import Precision, Sharding, run_dict
from scaling.training.checkpoint.checkpoints import Checkpoints
from scaling.training.checkpoint.resume import METRICS, changes
from scaling.training.data.tokens import Windows
from scaling.training.run_folder.folder import Options
from scaling.training.run_folder.metrics import read_metrics
from scaling.training.weights.naming import to_dict
from tests.scaling.training.fakes import scaling, train, with_step

STEPS, HALF = 8, 4
CUBE = {"data": 2, "fsdp": 2, "tensor": 2}
RTOL = 1e-4  # of losses on another mesh, in fp32
DEADLINE = 600  # seconds for a process to come up and compile on a busy machine


class Interrupted(Exception):
    """Stands for a crash of the process."""


def train_until(prepared, folder, steps=None, resume=False):
    """Train, crash after `steps` more steps if given; the batches seen."""

    def act(step):
        if step - 1 == steps:
            raise Interrupted

    plan, programs = with_step(prepared, act=act)
    try:
        train(plan, programs, Options(folder, resume))
    except Interrupted:
        assert steps is not None
    return [np.asarray(inputs) for inputs in programs.step.batches]


def losses(folder):
    """Step -> every number that the step computed, as it was written last."""
    names = ("loss", "grad_norm", "learning_rate")
    records = [record for record in read_metrics(folder) if "loss" in record]
    return {record["step"]: [record[name] for name in names] for record in records}


def final_state(prepared, folder):
    """Arrays by name, place in the data."""
    plan, programs = prepared
    with jax.set_mesh(plan.mesh), Checkpoints(folder / "checkpoints") as checkpoints:
        arrays, place, _ = checkpoints.restore(to_dict(programs.state))
    del place[METRICS]  # which has times
    return {name: np.asarray(array) for name, array in arrays.items()}, place


def assert_same_run(prepared, folder, expected):
    """Losses, parameters, optimiser state and place in the data are equal in every bit."""
    assert losses(folder) == losses(expected)
    (arrays, place), (others, other_place) = (
        final_state(prepared, each) for each in (folder, expected)
    )
    assert arrays.keys() == others.keys()
    assert {n.partition("/")[0] for n in arrays} == {"step", "params", "optimizer"}
    different = [n for n in arrays if arrays[n].tobytes() != others[n].tobytes()]
    assert different == []
    assert place == other_place


@pytest.fixture(scope="module")
def cube(toy, prepare):
    return prepare(toy(mesh=CUBE, checkpoint_every=2, steps=STEPS))


@pytest.fixture(scope="module")
def uninterrupted(cube, tmp_path_factory):
    """Folder of a whole run on 2 x 2 x 2 devices, and its batches."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    return folder, train_until(cube, folder)


@pytest.fixture
def half(cube, tmp_path):
    """Folder of the same run, crashed after the checkpoint of half of the steps."""
    folder = tmp_path / "half"
    train_until(cube, folder, HALF + 1)
    return folder


@pytest.mark.parametrize("done", [3, HALF])
def test_a_resumed_run_is_bit_identical_to_an_uninterrupted_one(
    cube, uninterrupted, tmp_path, done
):
    train_until(cube, tmp_path, done)
    resumed_at = done - done % 2
    rest = train_until(cube, tmp_path, resume=True)
    folder, batches = uninterrupted
    assert_same_run(cube, tmp_path, folder)
    np.testing.assert_array_equal(rest, batches[resumed_at:])


def test_a_run_may_be_interrupted_again_and_again(cube, uninterrupted, tmp_path):
    train_until(cube, tmp_path, 3)
    for _ in range(2):
        train_until(cube, tmp_path, 3, resume=True)
    train_until(cube, tmp_path, resume=True)
    assert_same_run(cube, tmp_path, uninterrupted[0])


def test_the_lines_of_repeated_steps_are_written_again(toy, prepare, tmp_path):
    prepared = prepare(toy(mesh=CUBE, checkpoint_every=3, steps=STEPS))
    train_until(prepared, tmp_path, 5)
    crashed = [record["step"] for record in read_metrics(tmp_path)]
    assert crashed in ([1, 2, 3, 4], [1, 2, 3, 4, 5])  # step 5 is read only if it was fast
    train_until(prepared, tmp_path, resume=True)
    records = read_metrics(tmp_path)
    assert [record["step"] for record in records] == [*crashed, *range(4, STEPS + 1)]
    assert records[3]["loss"] == records[len(crashed)]["loss"]


def test_a_run_may_be_continued_beyond_its_first_end(cube, toy, prepare, half):
    longer = prepare(toy(mesh=CUBE, checkpoint_every=2, steps=STEPS, keep_checkpoints=1))
    train_until(longer, half, resume=True)
    assert max(losses(half)) == STEPS
    assert [path.name for path in (half / "checkpoints").glob("step_*")] == ["step_00000008"]


@pytest.mark.parametrize(
    "mesh", [{"fsdp": 4}, *(pytest.param(m, marks=pytest.mark.slow) for m in ({}, {"tensor": 2}))]
)
def test_a_checkpoint_goes_on_on_another_mesh_with_the_same_losses(
    toy, prepare, uninterrupted, half, mesh
):
    other = prepare(toy(mesh=mesh, checkpoint_every=2, steps=STEPS))
    train_until(other, half, resume=True)
    expected, actual = losses(uninterrupted[0]), losses(half)
    assert list(actual) == list(expected)
    for step in range(HALF + 1, STEPS + 1):
        assert actual[step] == pytest.approx(expected[step], rel=RTOL)


# What is said


def test_what_differs_from_the_saved_description_is_said(cube, half, capsys):
    plan, programs = cube
    shutil.rmtree(half / "checkpoints" / "step_00000002")
    (half / "checkpoints" / "step_00000007.orbax-checkpoint-tmp").mkdir()
    run = replace(plan.run, train=replace(plan.run.train, keep_checkpoints=1))
    train(replace(plan, run=run), programs, Options(half, resume=True))
    said = capsys.readouterr().err
    assert "resumed after step 4\n" in said
    assert "left out: step 7, not saved to its end\n" in said
    assert "not as it was saved: train/keep_checkpoints 1 (2 before)\n" in said


def test_a_torn_line_is_written_again_and_lines_that_are_no_json_are_named(
    cube, uninterrupted, half, capsys
):
    """The torn one is of the step of the checkpoint, so that no step writes it again."""
    lines = (half / "metrics.jsonl").read_bytes().splitlines(keepends=True)[:HALF]
    (half / "metrics.jsonl").write_bytes(b"".join([lines[0], b"\0\0{\n", *lines[1:]])[:-9])
    train_until(cube, half, resume=True)
    said = capsys.readouterr().err
    assert f"{half / 'metrics.jsonl'}:2 is not JSON" in said and "lacks" not in said
    written = (half / "metrics.jsonl").read_bytes()
    assert written.splitlines(keepends=True)[2 : HALF + 1] == lines[1:]
    (half / "metrics.jsonl").write_bytes(written.replace(b"\0\0{\n", b""))
    assert losses(half) == losses(uninterrupted[0])


def test_steps_without_a_line_are_said(cube, half, capsys):
    lines = (half / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (half / "metrics.jsonl").write_bytes(lines[0])
    train_until(cube, half, resume=True)
    assert "lacks the lines of 2 steps, from 2 on" in capsys.readouterr().err


SETTINGS = st.recursive(
    st.integers(0, 3) | st.text("ab", max_size=2) | st.none(),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
TABLES = st.dictionaries(st.sampled_from("abc"), SETTINGS, max_size=3)


@given(TABLES, TABLES)
def test_what_differs_does_so_both_ways(one, other):
    """The same settings are named, whichever of the two was saved."""
    names = lambda lines: [line.split()[0] for line in lines]
    assert sorted(names(changes(one, other))) == sorted(names(changes(other, one)))
    assert list(changes(one, one)) == []


def test_only_what_is_not_said_elsewhere_is_named():
    before = {"name": "a", "mesh": {"fsdp": 2}, "train": {"steps": 5, "seed": 0}, "gone": 1}
    now = {"name": "b", "mesh": {"fsdp": 4}, "train": {"steps": 9, "seed": 1}, "new": 2}
    assert list(changes(before, now)) == ["train/seed 1 (0 before)"]


# Optimisers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "state", "stochastic"),
    [
        ("muon", "bf16", True),
        ("lion", "fp32", False),
        ("adafactor", "bf16", False),
        ("adamw", "bf16", True),
    ],
)
def test_the_state_of_every_optimizer_is_resumed_bit_for_bit_and_on_another_mesh(
    toy, prepare, tmp_path, name, state, stochastic
):
    precision = Precision("fp32", optimizer_state=state, stochastic_rounding=stochastic)

    def on(mesh):
        run = toy(mesh=mesh, checkpoint_every=2, steps=HALF)
        return prepare(replace(run, precision=precision, optimizer=name))

    train_until(on(CUBE), tmp_path / "whole")
    for folder, mesh in (("same", CUBE), ("other", {"fsdp": 4})):
        train_until(on(CUBE), tmp_path / folder, 3)
        train_until(on(mesh), tmp_path / folder, resume=True)
    assert_same_run(on(CUBE), tmp_path / "same", tmp_path / "whole")
    expected, actual = losses(tmp_path / "whole"), losses(tmp_path / "other")
    for step in range(1, HALF + 1):
        assert actual[step] == pytest.approx(expected[step], rel=RTOL)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_a_run_goes_on_under_another_zero_stage(toy, prepare, tmp_path, capsys, before, after):
    on = lambda zero: prepare(
        replace(
            toy(mesh=CUBE, microbatches=2, checkpoint_every=2, eval_every=2, steps=HALF),
            sharding=Sharding(zero_stage=zero),
        )
    )
    train_until(on(3), tmp_path / "whole")
    train_until(on(before), tmp_path / "half", 3)
    train_until(on(after), tmp_path / "half", resume=True)
    expected, actual = losses(tmp_path / "whole"), losses(tmp_path / "half")
    for step in range(1, HALF + 1):
        assert actual[step] == pytest.approx(expected[step], rel=RTOL)
    assert f"sharding/zero_stage {after} ({before} before)" in capsys.readouterr().err


# Damage


def flip_a_byte(file: Path) -> None:
    contents = bytearray(file.read_bytes())
    contents[len(contents) // 2] ^= 0xFF
    file.write_bytes(contents)


def largest_file(folder: Path) -> Path:
    return max((f for f in folder.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(cube, uninterrupted, half):
    flip_a_byte(largest_file(half / "checkpoints" / "step_00000004"))
    with pytest.warns(UserWarning, match="step_00000004 is damaged"):
        train_until(cube, half, resume=True)
    assert_same_run(cube, half, uninterrupted[0])


def test_other_data_cannot_be_continued(cube, half, tmp_path):
    plan, programs = cube
    train_part = plan.source.train
    shorter = Windows(train_part.tokens[:-100], train_part.seq_len, 256, "shorter")
    source = replace(plan.source, train=shorter)
    with pytest.raises(InputError, match="saved place in the data has tokens"):
        train(replace(plan, source=source), programs, Options(half, resume=True))


# Killed processes

SLOW_RUN = """
import json, time
from scaling.run import read_run
from scaling.training.run_folder.metrics import MetricsLog

write = MetricsLog.write

def slowly(log, step, **values):
    time.sleep({pause})
    write(log, step, **values)

MetricsLog.write = slowly

def run():
    return read_run(json.loads({text!r}))
"""
PAUSE = 0.3  # seconds per step: time to be killed in


@pytest.fixture(scope="module")
def run_file(cube, tmp_path_factory):
    """The cube run as a Python file, slowed down."""
    path = tmp_path_factory.mktemp("killed") / "slow.py"
    path.write_text(SLOW_RUN.format(text=json.dumps(run_dict(cube[0].run)), pause=PAUSE))
    return path


def start(run_file: Path, folder: Path, *words: str) -> subprocess.Popen:
    """`scaling train` as a process of its own on eight fake devices."""
    command = ["train", f"{run_file}:run", "--devices", "8", "--run-dir", folder, *words]
    return scaling(command, {"SCALING_CACHE": str(run_file.parent / "cache")})


def wait_for(process: subprocess.Popen, happened: Callable[[], bool]) -> None:
    """Return once a running process has done something."""
    deadline = time.monotonic() + DEADLINE
    while not happened():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_saved(folder: Path) -> bool:
    return any(folder.glob("checkpoints/step_*/checksums_0.json"))


def has_done(folder: Path, step: int) -> bool:
    file = folder / "metrics.jsonl"
    return file.exists() and f'"step": {step},' in file.read_text()


def kill(process: subprocess.Popen, folder: Path) -> None:
    """SIGKILL within a step or two: in a step, between two, in the middle of a checkpoint."""
    time.sleep(random.random() * 2 * PAUSE)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert max(losses(folder)) < STEPS


def test_a_killed_process_is_resumed_bit_for_bit(cube, run_file, uninterrupted, tmp_path):
    process = start(run_file, tmp_path)
    wait_for(process, lambda: has_saved(tmp_path))
    kill(process, tmp_path)
    train_until(cube, tmp_path, resume=True)
    assert_same_run(cube, tmp_path, uninterrupted[0])


@pytest.mark.slow
def test_a_terminated_process_saves_and_the_next_one_goes_on(
    cube, run_file, uninterrupted, tmp_path
):
    process = start(run_file, tmp_path)
    wait_for(process, lambda: has_done(tmp_path, 3))
    process.terminate()
    out, _ = process.communicate(timeout=DEADLINE)
    reached = max(losses(tmp_path))
    assert process.returncode == 0
    assert f"SIGTERM: saved at step {reached}\n" in out
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        assert checkpoints.latest() == reached < STEPS
    train_until(cube, tmp_path, resume=True)
    assert_same_run(cube, tmp_path, uninterrupted[0])


@pytest.mark.slow
def test_processes_killed_again_and_again_reach_the_same_end(
    cube, run_file, uninterrupted, tmp_path
):
    process = start(run_file, tmp_path)
    wait_for(process, lambda: has_saved(tmp_path))
    kill(process, tmp_path)
    for step in (3, 4, 5):  # where that step is done already, the process is killed as it starts
        process = start(run_file, tmp_path, "--resume")
        wait_for(process, lambda: has_done(tmp_path, step))  # noqa: B023
        kill(process, tmp_path)
    process = start(run_file, tmp_path, "--resume")
    process.communicate()
    assert process.returncode == 0
    assert_same_run(cube, tmp_path, uninterrupted[0])
