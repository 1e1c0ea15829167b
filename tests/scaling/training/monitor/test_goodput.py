"""Where the wall time goes: parts that add up, steps counted once, restarts included."""

import json
import time

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.training.launch.supervisor import BEGAN
from scaling.training.monitor.environment import describe_environment
from scaling.training.monitor.report import PAUSES, Clock, started_clock
from scaling.training.run_folder.folder import Options
from scaling.training.run_folder.metrics import step_times

SECONDS = st.floats(0, 1e3)


def lines(steps, first=1, at=100.0):
    """Training lines of steps of one second each."""
    return [
        {"step": step, "step_time": 1.0, "time": at + i}
        for i, step in enumerate(range(first, steps))
    ]


@given(st.lists(st.tuples(SECONDS, SECONDS)), st.floats(0, 1e6))
def test_parts_are_not_negative_and_add_up_to_no_less_than_the_whole(steps, before):
    clock = Clock(time.time() - before)
    for seconds, waited in steps:
        clock.useful += seconds
        clock.data += waited
    found = clock.figures()["wall_time"]
    parts = [found[name] for name in ("start", "steps", *PAUSES, "other")]
    assert all(part >= 0 for part in parts)
    assert sum(parts) >= found["total"] * (1 - 1e-9) - 1e-6
    assert 0 <= clock.goodput <= 1


def test_goodput_is_steps_over_the_time_since_the_beginning(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    clock = Clock(began=1000.0)
    now[0] = 1010.0
    clock.first = now[0]
    clock.useful, clock.data = 40.0, 1.0
    now[0] = 1100.0
    assert clock.goodput == 0.4
    assert clock.figures()["wall_time"] == {
        "total": 100.0,
        "start": 10.0,
        "steps": 40.0,
        "checkpoints": 0.0,
        "evaluation": 0.0,
        "other": 50.0,
        "data": 1.0,
    }


def test_a_pause_is_told_once(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = Clock(time.time())
    with clock.pause("checkpoints"):
        now[0] += 3.0
    assert clock.checkpoints_since_last() == 3.0
    assert clock.checkpoints_since_last() == 0.0
    with pytest.raises(ZeroDivisionError), clock.pause("checkpoints"):
        now[0] += 2.0
        raise ZeroDivisionError
    assert clock.checkpoints_since_last() == 2.0 and clock.pauses["checkpoints"] == 5.0


def test_repeated_steps_and_steps_that_were_lost_count_once_or_not():
    first = lines(6)  # steps 1 to 5, of which 4 and 5 were lost
    again = lines(8, first=4, at=200.0)
    useful = lambda *given, **limits: sum(step_times(*given, **limits).values())
    assert useful(first, since=0, until=3) == 3.0
    assert useful([*first, *again], since=0, until=7) == 7.0
    assert useful([*first, *again], since=150.0, until=7) == 4.0  # of an earlier command
    odd = [{"step": 1, "held_out_loss": 2.0}, {"step": 1, "step_time": None, "time": 5.0}, {}]
    assert useful(odd, since=0, until=9) == 0


def test_a_resumed_run_takes_over_what_its_earlier_attempts_have_kept(tmp_path, monkeypatch):
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines(6)))
    resumed = Options(tmp_path, resume=True, began=50.0)
    assert started_clock(resumed, done=4).useful == 4.0
    assert started_clock(Options(tmp_path, resume=True, began=103.0), done=5).useful == 2.0
    assert started_clock(Options(tmp_path, began=50.0), done=0).useful == 0.0
    # What somebody has edited stops no run, nor is the rest forgotten.
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('not json\n{"step": [1], "step_time": 1.0, "time": 60.0}\n')
    assert started_clock(resumed, done=4).useful == 4.0
    (tmp_path / "metrics.jsonl").unlink()
    assert started_clock(resumed, done=4).useful == 0.0
    assert Options(tmp_path).began == pytest.approx(time.time(), abs=60)
    monkeypatch.setenv(BEGAN, "123.5")
    assert Options(tmp_path).began == 123.5


# environment.json


def test_the_environment_has_host_devices_versions_and_settings_without_secrets():
    kept = {
        "FI_PROVIDER": "efa",
        "JAX_PLATFORMS": "cpu",
        "NCCL_ALGO": "Ring",
        "XLA_FLAGS": "--xla_dump_to=dump",
    }
    secrets = {"WANDB_API_KEY": "secret", "NVIDIA_API_KEY": "secret", "HOME": "somewhere"}
    mesh = jax.make_mesh((4,), ("fsdp",), devices=jax.devices()[:4])
    document = describe_environment(mesh, kept | secrets)
    assert document["devices"] == ["cpu"] * 4 and document["processes"] == 1
    assert document["versions"]["jax"] == jax.__version__
    assert document["settings"] == kept
    assert json.loads(json.dumps(document)) == document
