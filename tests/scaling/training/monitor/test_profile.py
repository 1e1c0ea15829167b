"""--record-profile FROM:TO: what is asked for is checked, recorded, and can be read."""

import time

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.training import loop
from scaling.training.monitor.profile import ProfileRecorder, parse_range
from scaling.training.run_folder.folder import Options
from scaling.training.run_folder.metrics import read_metrics
from tests.scaling.training.fakes import train, with_step


@given(st.text(max_size=8) | st.from_regex(r"[0-9]{1,3}:[0-9]{1,3}", fullmatch=True))
def test_whatever_is_typed_is_a_range_or_bad_input(text):
    try:
        first, last = parse_range(text, 99)
    except InputError:
        return
    assert 1 <= first <= last <= 99


@pytest.mark.parametrize("text", ["", "3", ":3", "3-5", "a:b", "1:2:3", "-1:2", "²:3"])
def test_what_is_not_two_numbers_says_what_is_expected(text):
    with pytest.raises(InputError, match="expected FROM:TO"):
        parse_range(text, 10)


@pytest.mark.parametrize("text", ["0:3", "5:4", "3:11"])
def test_steps_outside_the_run_say_its_length(text):
    with pytest.raises(InputError, match=r"within 1\.\.10"):
        parse_range(text, 10)


def recorded(folder):
    """The profile in a folder, and the number of its events."""
    (file,) = folder.rglob("*.xplane.pb")
    data = jax.profiler.ProfileData.from_file(str(file))
    return data, sum(len(list(line.events)) for plane in data.planes for line in plane.lines)


def test_a_run_leaves_a_profile_that_jax_reads_and_says_how_to_open_it(
    toy, prepare, tmp_path, capsys
):
    train(*prepare(toy()), Options(tmp_path, profile=(3, 4)))
    data, events = recorded(tmp_path / "profile")
    assert any("CPU" in plane.name for plane in data.planes)
    assert events > 0
    (file,) = (tmp_path / "profile").rglob("*.xplane.pb")  # where TensorBoard's plugin looks
    assert file.relative_to(tmp_path / "profile").parts[:2] == ("plugins", "profile")
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "recorded" in line]
    assert line.startswith("recorded steps 3 to 4: ")
    assert f"tensorboard --logdir {tmp_path / 'profile'}" in line and "#profile" in line


STEP, TRACE = 0.05, 1000.0  # s, that one step and each end of a recording take at least


@pytest.mark.parametrize("is_ready", [True, False], ids=["waiting", "ahead"])
def test_no_step_time_includes_the_beginning_or_the_end_of_a_recording(
    toy, prepare, tmp_path, monkeypatch, is_ready
):
    """On devices that the host waits for, and on those that it runs ahead of."""
    calls, clock = [], time.perf_counter

    def slow(*folder):
        calls.append(folder)

    monkeypatch.setattr(time, "perf_counter", lambda: clock() + TRACE * len(calls))
    monkeypatch.setattr(jax.profiler, "start_trace", slow)
    monkeypatch.setattr(jax.profiler, "stop_trace", slow)
    monkeypatch.setattr(loop.InFlight, "is_ready", lambda self: is_ready)
    prepared = with_step(prepare(toy()), act=lambda step: time.sleep(STEP))
    train(*prepared, Options(tmp_path, profile=(4, 6)))
    times = [record["step_time"] for record in read_metrics(tmp_path)]
    assert len(calls) == 2 and len(times) == 8
    least = STEP / 2 if is_ready else 0.0  # a dispatch that sleeps is counted where it is ahead of
    assert all(least < seconds < TRACE / 2 for seconds in times), times


def steps_recorded(folder, steps, last):
    """Names of the annotated steps found in a profile of `steps`, of a run of `last` steps."""
    double = jax.jit(lambda x: 2 * x)
    with ProfileRecorder(folder, steps) as profile:
        for step in range(1, last + 1):
            profile.before(step, jnp.float32(step))
            with jax.profiler.TraceAnnotation(f"step {step}"):
                result = double(jnp.float32(step))
            profile.after(step, result)
    data, _ = recorded(folder)
    lines = [line for plane in data.planes for line in plane.lines]
    names = {event.name for line in lines for event in line.events}
    return sorted(name for name in names if name.startswith("step "))


@pytest.mark.parametrize(("steps", "found"), [((2, 3), ["step 2", "step 3"]), ((4, 4), ["step 4"])])
def test_only_the_steps_asked_for_are_recorded(tmp_path, steps, found):
    assert steps_recorded(tmp_path, steps, last=5) == found


def test_a_run_that_ends_early_keeps_what_was_recorded(tmp_path):
    assert steps_recorded(tmp_path, (3, 9), last=4) == ["step 3", "step 4"]


def test_a_crash_ends_the_recording(tmp_path):
    with pytest.raises(ZeroDivisionError), ProfileRecorder(tmp_path / "first", (1, 9)) as profile:
        profile.before(1, None)
        raise ZeroDivisionError
    assert steps_recorded(tmp_path / "second", (1, 1), last=1) == ["step 1"]


def test_without_a_range_nothing_is_recorded(tmp_path):
    with ProfileRecorder(tmp_path / "profile", None) as profile:
        for step in range(1, 4):
            profile.before(step, jnp.float32(step))
            profile.after(step, jnp.float32(0))
    assert not (tmp_path / "profile").exists()


def test_a_recording_that_cannot_be_written_is_a_warning_and_the_run_goes_on(tmp_path, monkeypatch):
    write = jax.profiler.stop_trace

    def refuse():
        write()
        raise jax.errors.JaxRuntimeError("PERMISSION_DENIED: profile")

    monkeypatch.setattr(jax.profiler, "stop_trace", refuse)
    with ProfileRecorder(tmp_path, (1, 1)) as profile:
        profile.before(1, None)
        with pytest.warns(UserWarning, match="no recording is written to .*PERMISSION_DENIED"):
            assert not profile.after(1, jnp.float32(0))
    assert profile.recorded == (1, 1)  # a step that took longer all the same
