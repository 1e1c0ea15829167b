"""The loop: what a run leaves behind, that it never blocks the devices, and how it stops."""

import errno
import json
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections import namedtuple
from dataclasses import replace
from itertools import islice, pairwise

import jax
import numpy as np
import pytest

from scaling.meshes.errors import InputError
from scaling.run import load_run
from scaling.training.checkpoint.checkpoints import Checkpoints
from scaling.training.data.batches import TrainingBatches
from scaling.training.data.sums import data_sums
from scaling.training.launch.stopping import NotFinite
from scaling.training.launch.watchdog import Watchdog
from scaling.training.loop import RunResult
from scaling.training.run_folder import metrics
from scaling.training.run_folder.checksums import find_damage
from scaling.training.run_folder.folder import Options, lock_run_folder
from scaling.training.run_folder.metrics import read_metrics
from scaling.training.run_folder.steps import saved_steps as steps_in
from tests.scaling.training.fakes import train, with_step

STEPS = 8
KEYS = "step loss tokens tokens_seen step_time tokens_per_second learning_rate grad_norm".split()
WATCHED = "time data_time checkpoint_time peak_memory goodput mfu hfu".split()
DiskUsage = namedtuple("DiskUsage", "total used free")


class Scalar:
    """A metric of a step that takes its time, which notes when it is read."""

    def __init__(self, value, note):
        self.value, self.note = value, note

    def is_ready(self):
        return False

    def __float__(self):
        self.note()
        return float(self.value)


def saved_steps(folder):
    return steps_in(folder / "checkpoints")


def assert_whole(folder, step):
    assert find_damage(folder / "checkpoints" / f"step_{step:08d}") is None


@pytest.fixture(scope="module")
def finished(toy, prepare, tmp_path_factory):
    """Folder, plan and outcome of a run to its end on one device."""
    folder = tmp_path_factory.mktemp("run")
    plan, programs = prepare(toy(checkpoint_every=3, eval_every=3, steps=STEPS))
    outcome = train(plan, programs, Options(folder))
    return folder, plan, outcome


def numbers(lines):
    """Of each step what does not depend on the time."""
    return [[line[key] for key in ("step", "loss", "grad_norm", "tokens_seen")] for line in lines]


def training_lines(folder):
    return [record for record in read_metrics(folder) if "loss" in record]


def test_each_step_has_one_line_with_the_keys_of_the_contract_in_order(finished):
    lines = training_lines(finished[0])
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    for line in lines:
        assert list(line) == KEYS + WATCHED
        assert line["tokens"] == 8 * 16 and line["tokens_seen"] == line["step"] * 8 * 16
        assert line["tokens_per_second"] == pytest.approx(line["tokens"] / line["step_time"])
        assert 0 < line["goodput"] <= 1 and line["data_time"] >= 0
        assert float(np.float32(line["loss"])) == line["loss"] != round(line["loss"], 6)
    assert [a["time"] < b["time"] for a, b in pairwise(lines)] == [True] * (STEPS - 1)
    paused = [line["step"] for line in lines if line["checkpoint_time"]]
    assert paused == [4, 7]  # after those of steps 3 and 6
    assert {line["peak_memory"] for line in lines} == {None}  # jax does not count on the CPU
    assert {line["mfu"] for line in lines} == {None}  # nothing was predicted


def test_measured_json_leaves_the_first_steps_out_and_says_where_the_wall_time_went(finished):
    document = json.loads((finished[0] / "measured.json").read_text())
    keys = {"name", "machine", "versions", "step_time", "memory", "recorded_steps"}
    assert set(document) == keys | {"goodput", "wall_time", "checkpoints"}
    times = [line["step_time"] for line in training_lines(finished[0])]
    assert document["step_time"]["steps"] == STEPS - 3
    assert document["step_time"]["measured"] == sorted(times[3:])[len(times[3:]) // 2]
    assert document["memory"]["compiled"] > 0
    spent = document["wall_time"]
    assert spent["steps"] == pytest.approx(sum(times))
    assert spent["checkpoints"] > 0 and spent["evaluation"] > 0
    assert 0 < document["goodput"] <= 1
    assert document["checkpoints"]["saves"] == 3  # of steps 3, 6 and 8
    assert document["checkpoints"]["share"] == spent["checkpoints"] / spent["total"]


def test_the_losses_fall_from_that_of_a_guess(finished):
    losses = [line["loss"] for line in training_lines(finished[0])]
    assert losses[0] == pytest.approx(math.log(256), rel=0.02)
    assert losses[-1] < losses[0] - 1
    assert finished[2] == RunResult(STEPS, STEPS, losses[-1])
    lines = [line for line in read_metrics(finished[0]) if "held_out_loss" in line]
    assert [line["step"] for line in lines] == [3, 6, STEPS]
    assert lines[-1]["held_out_loss"] < lines[0]["held_out_loss"]
    assert list(lines[0]) == ["step", "held_out_loss"]


def test_the_folder_has_the_run_with_its_mesh_the_newest_checkpoints_and_nothing_else(finished):
    folder, plan, _ = finished
    assert load_run(folder / "run.json") == plan.run
    assert json.loads((folder / "run.json").read_text())["mesh"]["fsdp"] == 1
    assert saved_steps(folder) == [6, STEPS]
    files = {"run.json", "metrics.jsonl", "measured.json", "environment.json"}
    assert {path.name for path in folder.iterdir()} == files | {"checkpoints"}


def dispatches_and_reads(toy, prepare, folder, **settings):
    """What the host did with the device, in order: ("dispatch" | "read", step)."""
    events = []

    def watched(step, metrics):
        note = lambda: events.append(("read", step))
        return {**metrics, "loss": Scalar(metrics["loss"], note)}

    act = lambda step: events.append(("dispatch", step))
    train(*with_step(prepare(toy(**settings)), act=act, change=watched), Options(folder))
    return events


def test_each_step_but_the_last_is_dispatched_before_the_one_before_it_is_read(
    toy, prepare, tmp_path
):
    events = dispatches_and_reads(toy, prepare, tmp_path)
    expected = [("dispatch", 1)]
    for step in range(2, STEPS):
        expected += [("dispatch", step), ("read", step - 1)]
    assert events == [*expected, ("read", STEPS - 1), ("dispatch", STEPS), ("read", STEPS)]


def test_who_stands_still_in_a_step_is_behind_those_who_ask_whether_to_save(toy, prepare, tmp_path):
    """In a job they wait there for all: it is a place of its own."""
    dog, places = Watchdog(tmp_path, 0), []
    dog.mark = lambda place, step=None: places.append(place)
    train(*prepare(toy()), Options(tmp_path), lambda: None, dog)
    assert places[:4] == ["data", "step", "agreement", "data"]


def test_only_a_checkpoint_waits_for_the_step_before_it_and_the_newest(toy, prepare, tmp_path):
    events = dispatches_and_reads(toy, prepare, tmp_path, checkpoint_every=3)
    waited_for = [
        step
        for place, (what, step) in enumerate(events)
        if what == "read" and ("dispatch", step + 1) not in events[:place]
    ]
    assert waited_for == [2, 3, 5, 6, STEPS - 1, STEPS]


class Cpus:
    """A clock, and steps of one second on devices that work inside the dispatch of a step while
    another is in flight, as jax's CPU devices do."""

    def __init__(self):
        self.now = self.busy_until = 0.0  # s
        self.of_thread = threading.local()

    def clock(self):
        return getattr(self.of_thread, "now", self.now)

    def dispatch(self, step, metrics):
        waits = self.busy_until > self.now
        self.busy_until = max(self.busy_until, self.now) + 1.0
        self.now = self.busy_until if waits else self.now
        return {**metrics, "loss": TimedScalar(metrics["loss"], self, self.busy_until)}


class TimedScalar:
    """A metric that is known at `end`."""

    def __init__(self, value, cpus, end):
        self.value, self.cpus, self.end = value, cpus, end

    def is_ready(self):
        return self.cpus.now >= self.end

    def block_until_ready(self):
        self.cpus.of_thread.now = self.end

    def __float__(self):
        self.cpus.now = max(self.cpus.now, self.end)
        return float(self.value)


@pytest.mark.parametrize("every", [0, 2, 3])
def test_a_step_takes_as_long_whenever_its_end_is_looked_for(
    toy, prepare, tmp_path, monkeypatch, every
):
    cpus = Cpus()
    monkeypatch.setattr(time, "perf_counter", cpus.clock)
    prepared = with_step(prepare(toy(checkpoint_every=every)), change=cpus.dispatch)
    train(*prepared, Options(tmp_path))
    assert [line["step_time"] for line in training_lines(tmp_path)] == [1.0] * STEPS


def test_the_progress_line_goes_to_stderr_only(toy, prepare, tmp_path, capsys):
    train(*prepare(toy(eval_every=4)), Options(tmp_path))
    out, err = capsys.readouterr()
    assert out == ""
    assert f"step {STEPS}/{STEPS} | loss" in err
    assert "step 4: held-out loss" in err


# Stopping on NaN


def poisoned(at, name):
    """Metrics in which `name` is not a number at step `at`."""
    value = jax.numpy.float32(math.nan)
    return lambda step, metrics: {**metrics, name: value} if step == at else metrics


@pytest.mark.parametrize(
    ("name", "at", "last_good"), [("loss", 5, 4), ("grad_norm", 4, 2), ("loss", 7, 6)]
)
def test_nan_stops_with_the_batch_saved_and_an_older_checkpoint_newest(
    toy, prepare, tmp_path, name, at, last_good
):
    plan, programs = with_step(prepare(toy(checkpoint_every=2)), change=poisoned(at, name))
    with pytest.raises(NotFinite, match=f"step {at}: .*checkpoint of step {last_good} is the last"):
        train(plan, programs, Options(tmp_path))
    assert saved_steps(tmp_path)[-1] == last_good
    assert_whole(tmp_path, last_good)
    last = read_metrics(tmp_path)[-1]
    assert (last["step"], last[name]) == (at, None)
    batches = TrainingBatches(plan.source, 8, plan.run.train.seed)
    inputs, targets = next(islice(batches, at - 1, None))
    batches.close()
    with np.load(tmp_path / f"nan_step_{at}.npz") as saved:
        assert saved["step"] == at
        np.testing.assert_array_equal(saved["inputs"], inputs)
        np.testing.assert_array_equal(saved["targets"], targets)


def test_the_run_goes_on_from_the_checkpoint_before_the_nan(toy, prepare, tmp_path):
    prepared = prepare(toy(checkpoint_every=2))
    plan, programs = with_step(prepared, change=poisoned(5, "loss"))
    with pytest.raises(NotFinite):
        train(plan, programs, Options(tmp_path))
    outcome = train(*prepared, Options(tmp_path, resume=True))
    assert outcome.step == STEPS and math.isfinite(outcome.loss)


@pytest.mark.slow
def test_an_absurd_learning_rate_stops_the_run(toy, prepare, tmp_path):
    plan, programs = prepare(toy(learning_rate=1e30, warmup_steps=0))
    with pytest.raises(NotFinite, match="Lower train.learning_rate"):
        train(plan, programs, Options(tmp_path))
    assert saved_steps(tmp_path) == []


def test_without_a_checkpoint_nobody_is_told_to_resume(toy, prepare, tmp_path):
    with pytest.raises(NotFinite) as caught:
        train(*with_step(prepare(toy()), change=poisoned(2, "loss")), Options(tmp_path))
    assert "None" not in str(caught.value) and "--resume" not in str(caught.value)


# Stopping on a signal


def at_step(wanted, action):
    return lambda step: action() if step == wanted else None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_step_in_flight_saves_and_leaves(toy, prepare, tmp_path, number):
    before = signal.getsignal(number)
    plan, programs = with_step(prepare(toy()), act=at_step(3, lambda: os.kill(os.getpid(), number)))
    outcome = train(plan, programs, Options(tmp_path))
    assert (outcome.step, outcome.stopped_by) == (3, signal.Signals(number).name)
    assert saved_steps(tmp_path) == [3]
    assert_whole(tmp_path, 3)
    assert [line["step"] for line in training_lines(tmp_path)] == [1, 2, 3]
    assert outcome.loss == training_lines(tmp_path)[-1]["loss"]
    assert signal.getsignal(number) is before


def test_a_signal_just_after_a_checkpoint_does_not_write_it_again(
    toy, prepare, tmp_path, monkeypatch
):
    saved, save = [], Checkpoints.save

    def save_and_stop(self, step, *rest):
        saved.append(step)
        save(self, step, *rest)
        if len(saved) == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Checkpoints, "save", save_and_stop)
    outcome = train(*prepare(toy(checkpoint_every=2)), Options(tmp_path))
    assert (outcome.step, outcome.stopped_by) == (2, "SIGTERM")
    assert saved == [2]


# Resumed


def test_a_finished_run_that_is_resumed_stays_as_it_is(finished, prepare, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(finished[0], folder)
    measured = (folder / "measured.json").read_text()
    plan, programs = prepare(finished[1].run)
    other = replace(plan, run=replace(plan.run, name="other"))
    outcome = train(other, programs, Options(folder, resume=True))
    assert outcome.step == STEPS
    assert (folder / "measured.json").read_text() == measured
    assert load_run(folder / "run.json") == plan.run
    assert read_metrics(folder) == read_metrics(finished[0])


def test_what_was_measured_before_goes_as_soon_as_the_run_goes_on(prepare, finished, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(finished[0], folder)
    shutil.rmtree(folder / "checkpoints" / f"step_{STEPS:08d}")
    there = []
    step = at_step(1, lambda: there.append((folder / "measured.json").exists()))
    prepared = with_step(prepare(finished[1].run), act=step)
    train(*prepared, Options(folder, resume=True))
    assert there == [False] and (folder / "measured.json").exists()


# A full disk


def test_a_disk_that_fills_up_ends_the_run_with_its_last_checkpoint_whole(
    toy, prepare, tmp_path, monkeypatch
):
    usage = lambda path: DiskUsage(10**6, 10**6 - 1234, 1234 if saved_steps(tmp_path) else 10**9)
    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(InputError, match=r"(?s)step 4 not saved.*1,234 bytes.*step 2 is the last"):
        train(*prepare(toy(checkpoint_every=2)), Options(tmp_path))
    assert saved_steps(tmp_path) == [2]
    assert_whole(tmp_path, 2)


def test_metrics_that_cannot_be_written_end_the_run_saved_and_their_lines_come_later(
    toy, prepare, finished, tmp_path, monkeypatch
):
    write = metrics._write_whole

    def full(file, text):
        if b'"step": 5' in text:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(file, text)

    monkeypatch.setattr(metrics, "_write_whole", full)
    with pytest.raises(
        InputError, match=r"metrics.jsonl: No space.*the checkpoint of step [56] is"
    ):
        train(*prepare(toy(checkpoint_every=4)), Options(tmp_path))
    assert [line["step"] for line in training_lines(tmp_path)] == [1, 2, 3, 4]
    monkeypatch.undo()
    train(*prepare(toy(checkpoint_every=4)), Options(tmp_path, resume=True))
    assert numbers(training_lines(tmp_path)) == numbers(training_lines(finished[0]))


@pytest.mark.parametrize("file", ["run.json", "environment.json", "metrics.jsonl", "measured.json"])
def test_a_file_that_cannot_be_written_at_the_start_is_named(toy, prepare, tmp_path, file):
    (tmp_path / file).mkdir()
    with pytest.raises(InputError, match=f"{file}: Is a directory. .* holds no checkpoint"):
        train(*prepare(toy()), Options(tmp_path))


def test_a_run_whose_folder_is_moved_ends_and_writes_nothing_more(toy, prepare, tmp_path):
    folder, moved = tmp_path / "run", tmp_path / "moved"

    def act(step):
        if step == 4:
            folder.rename(moved)

    with (
        lock_run_folder(Options(folder)) as check,
        pytest.raises(InputError, match="run, or .lock in it, was moved or deleted"),
    ):
        train(*with_step(prepare(toy()), act=act), Options(folder), check)
    assert not folder.exists()
    assert max(line["step"] for line in training_lines(moved)) < 4


def test_files_that_are_links_are_replaced_and_what_they_lead_to_is_left(toy, prepare, tmp_path):
    theirs, folder = tmp_path / "theirs", tmp_path / "run"
    theirs.write_text("theirs")
    folder.mkdir()
    files = [folder / name for name in ("run.json", "environment.json", "measured.json")]
    for file in files:
        file.symlink_to(theirs)
    train(*prepare(toy()), Options(folder))
    assert theirs.read_text() == "theirs"
    assert all(json.loads(file.read_text()) and not file.is_symlink() for file in files)


def test_a_batch_that_cannot_be_saved_does_not_hide_the_nan(toy, prepare, tmp_path):
    (tmp_path / "nan_step_2.npz").mkdir()
    with pytest.raises(NotFinite, match="step 2: loss nan.*could not be saved.*Is a directory"):
        train(*with_step(prepare(toy()), change=poisoned(2, "loss")), Options(tmp_path))


# The command


@pytest.fixture
def command(prepare, monkeypatch, tmp_path):
    """`scaling train RUN ...` in this process, on programs compiled before; returns the code."""
    from scaling.cli import main as cli
    from scaling.compile import options
    from scaling.training import prepare as preparing

    def call(run, *words, step=None):
        plan, programs = prepare(run)
        plan = replace(plan, sums=data_sums(run.train))
        if step:
            programs = with_step((plan, programs), **step)[1]

        def compile_programs(plan):
            call.compiled.append(plan)
            return programs

        monkeypatch.setattr("scaling.api.runs.load_run", lambda *_, **__: run, raising=False)
        monkeypatch.setattr(preparing, "plan", lambda run: plan)
        monkeypatch.setattr(preparing, "compile_programs", compile_programs)
        monkeypatch.setattr(options, "use_compilation_cache", lambda: None)
        return cli.main(["train", "toy", "--run-dir", str(tmp_path / "run"), *words])

    call.compiled = []
    return call


def test_a_finished_command_says_what_to_do_next(command, toy, capsys, tmp_path):
    assert command(toy()) == 0
    out, err = capsys.readouterr()
    assert "trained to step 8" in out and "scaling sample" in out
    assert "parameters on" in err and "total" in err


def test_a_stop_on_nan_is_exit_code_1_in_one_message(command, toy, capsys):
    assert command(toy(), step={"change": poisoned(3, "loss")}) == 1
    assert "stopped: step 3: loss nan" in capsys.readouterr().err


def test_a_stop_by_sigterm_is_exit_code_0_or_the_launchers_and_can_be_resumed(
    command, toy, capsys, tmp_path
):
    assert command(toy(), "--resume") == 2
    assert "no finished checkpoint" in capsys.readouterr().err
    at = lambda step: {"act": at_step(step, lambda: os.kill(os.getpid(), signal.SIGTERM))}
    assert command(toy(), step=at(3)) == 0
    assert (
        "SIGTERM: saved at step 3\nnext: the same command with --resume" in capsys.readouterr().out
    )
    assert command(toy()) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert command(toy(), "--resume", "--stopped-code", "75", step=at(2)) == 75
    assert command(toy(), "--resume", "--stopped-code", "75") == 0
    assert [line["step"] for line in training_lines(tmp_path / "run")] == list(range(1, STEPS + 1))


def test_resuming_a_finished_run_prepares_nothing_and_writes_nothing(
    command, toy, capsys, tmp_path
):
    assert command(toy()) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    command.compiled.clear()
    assert command(toy(), "--resume") == 0
    assert "already trained to step 8" in capsys.readouterr().out
    assert command.compiled == []
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_data_that_have_changed_are_refused_unless_they_are_allowed(
    command, toy, capsys, tmp_path, words_file
):
    terminate = {"act": at_step(3, lambda: os.kill(os.getpid(), signal.SIGTERM))}
    assert command(toy(), step=terminate) == 0
    kept = tmp_path / "run" / "data.json"
    now = kept.read_text()
    before = json.loads(now)
    before["sources"][0]["files"][""][1] ^= 1
    kept.write_text(json.dumps(before))
    command.compiled.clear()
    assert command(toy(), "--resume") == 2
    said = capsys.readouterr().err
    assert f"the data have changed since the run began: {words_file} has other content" in said
    assert "--allow-changed-data" in said and command.compiled == []
    assert command(toy(), "--resume", "--allow-changed-data") == 0
    assert f"warning: the data have changed: {words_file}" in capsys.readouterr().err
    assert kept.read_text() == now


def test_fewer_tokens_than_before_are_refused_before_any_compile_even_where_allowed(
    command, toy, capsys, tmp_path, words_file
):
    words = tmp_path / "words.txt"
    words.write_bytes(words_file.read_bytes())
    terminate = {"act": at_step(3, lambda: os.kill(os.getpid(), signal.SIGTERM))}
    assert command(toy(data=str(words)), step=terminate) == 0
    before = words.stat().st_size
    words.write_bytes(words.read_bytes()[:-1000])
    command.compiled.clear()
    assert command(toy(data=str(words)), "--resume", "--allow-changed-data") == 2
    said = capsys.readouterr().err
    numbers = (before - before // 20, before - 1000 - (before - 1000) // 20)  # a twentieth held out
    assert "has tokens {}, this run has {}: ".format(*numbers) in said
    assert "not even with --allow-changed-data" in said and command.compiled == []


def test_resuming_a_finished_run_writes_what_it_could_not_write_at_its_end(
    command, toy, capsys, tmp_path
):
    folder, run = tmp_path / "run", toy(eval_every=4)
    assert command(run, step={"act": at_step(8, (folder / "measured.json").mkdir)}) == 2
    said = capsys.readouterr().err
    assert "measured.json: Is a directory. Make it writable; the checkpoint of step 8" in said
    (folder / "measured.json").rmdir()
    written = (folder / "metrics.jsonl").read_bytes()
    without_the_last = written[: written[:-1].rfind(b"\n") + 1]  # the held-out loss of the end
    (folder / "metrics.jsonl").write_bytes(without_the_last)
    assert command(run, "--resume") == 0
    assert "measured.json was missing: made again" in capsys.readouterr().err
    assert (folder / "metrics.jsonl").read_bytes() == written
    times = [line["step_time"] for line in training_lines(folder)]
    document = json.loads((folder / "measured.json").read_text())
    assert document["step_time"]["measured"] == sorted(times[3:])[2]


@pytest.mark.parametrize(
    "words",
    [
        ["--record-profile", "3:99"],
        ["--wandb"],
        ["--stopped-code", "126"],
        ["--stopped-code", "-1"],
        ["--stopped-code", "1"],  # which says that a run failed
        ["--stopped-code", "2"],
    ],
)
def test_bad_options_are_found_before_anything_is_compiled(command, toy, monkeypatch, words):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert command(toy(), *words) == 2
    assert not command.compiled
