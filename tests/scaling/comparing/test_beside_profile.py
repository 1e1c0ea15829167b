"""A prediction beside a profile: what the run did otherwise is found, and nothing else.

No profile of a real GPU is kept here: these are made from the predicted timeline, changed at known
places, so they prove the join and not the prices. One is recorded on this machine's CPU.
"""

import gzip
import json
from pathlib import Path

import pytest
from pytest import approx

import scaling as sc
from scaling.comparing.comparison import SUMMED
from tests.scaling.comparing.gpu_traces import write_run

DUMP = Path(__file__).parents[1] / "hlo" / "dumps" / "jax-0.12.0"
GEMM, SLICE = "gemm_fusion_dot.7", "wrapped_slice"  # instructions of the dump
MODEL, DATA = "all-reduce.8", "all-reduce.9"  # its collectives


@pytest.fixture(scope="module")
def predicted():
    return sc.predict_hlo(DUMP, "dgx-h100")


@pytest.fixture
def beside(predicted, tmp_path):
    """Makes the comparison with a run that differs from the prediction as said."""

    def make(steps=None, **run):
        return predicted.compare(
            write_run(tmp_path / "host.trace.json.gz", predicted, **run), steps
        )

    return make


def test_a_run_as_predicted_has_no_error(beside, predicted):
    found = beside()
    assert (found.step_time.steps, found.machine) == (4, "2 x GPU, recorded")
    assert found.step_time.seconds.error == approx(0, abs=1e-6)
    assert {name: pair.error for name, pair in found.classes.items()} == {
        name: approx(0, abs=1e-6) for name in ("matmul", "fusion", "all-reduce")
    }
    assert all(c.seconds.error == approx(0, abs=1e-6) for c in found.collectives)
    assert [c.axis for c in found.collectives] == ["data", "model"]
    assert sum(found.time[term].measured for term in SUMMED) == approx(float(predicted.step_time))
    assert (found.match.share, found.match.recorded_only, found.warnings) == (1.0, {}, ())
    assert found.explanation == "" and "kernels that differ" not in str(found)
    assert repr(found).startswith(f"<comparison of {found.name}: step predicted ")


def test_a_class_that_takes_twice_as_long_is_the_one_with_an_error(beside):
    found = beside(times={"matmul": 2.0})
    assert found.classes["matmul"].error == approx(-0.5)
    assert found.classes["fusion"].error == approx(0, abs=1e-6)
    assert {k.name for k in found.kernels[:5]} == {f"gemm_fusion_dot.{n}" for n in range(7, 12)}


def test_a_collective_that_takes_three_times_as_long_is_the_one_with_an_error(beside):
    found = beside(times={DATA: 3.0})
    errors = {c.axis: c.seconds.error for c in found.collectives}
    assert errors == {"data": approx(-2 / 3), "model": approx(0, abs=1e-6)}
    assert found.collectives[0].instructions[DATA].error == approx(-2 / 3)
    assert found.classes["matmul"].error == approx(0, abs=1e-6)
    longer = found.step_time.seconds.measured - found.step_time.seconds.predicted
    assert longer == approx(2 * found.collectives[0].seconds.predicted)  # all of it is exposed
    text = found.explanation
    assert "predicted: exposed communication" in text and "most by all-reduce[data] 32 KiB" in text


def test_what_was_not_recorded_and_what_is_not_in_the_program_is_named(beside):
    found = beside(missing=(GEMM,), renamed={SLICE: "loop_slice_fusion.99"})
    assert set(found.match.predicted_only) == {GEMM, SLICE}
    assert list(found.match.recorded_only) == ["loop_slice_fusion.99"]
    assert found.classes["fusion"].error == approx(0, abs=1e-6)  # by its name
    assert any("were not recorded: " + GEMM in text for text in found.warnings)
    assert "in the program, not recorded" in str(found)


def test_a_program_that_was_compiled_otherwise_is_compared_by_class(beside, predicted):
    names = [s.name for s in predicted.pricing.program.schedule]
    renamed = {n: f"{n.split('.')[0]}.{n.split('.')[-1]}77" for n in names if n != SLICE}
    found = beside(renamed=renamed, times={"matmul": 2.0})
    assert not found.match.by_name and 0 < found.match.share < 0.1
    assert found.classes["matmul"].error == approx(-0.5)
    assert found.classes["all-reduce"].error == approx(0, abs=1e-6)
    assert found.kernels == ()
    assert {c.axis: c.seconds.error for c in found.collectives} == {
        axis: approx(0, abs=1e-6) for axis in ("data", "model")
    }
    assert "classes are compared, and no single kernels" in found.warnings[0]
    assert "2 collectives are joined by kind and order" in found.warnings[1]


def test_a_run_of_another_version_of_jax_is_joined_as_far_as_it_goes(predicted, tmp_path):
    """jax 0.10 starts its all-reduces, 0.12 runs them at once: names and some fusions differ."""
    run = sc.predict_hlo(DUMP.parent / "jax-0.10.2", "dgx-h100")
    path = write_run(tmp_path / "a.trace.json.gz", run, times={"all-reduce-start.1": 1.25})
    found = predicted.compare(path)
    assert found.match.by_name and 0.5 < found.match.share < 1
    assert found.match.by_order == {"all-reduce-start": MODEL, "all-reduce-start.1": DATA}
    errors = {c.axis: c.seconds.error for c in found.collectives}
    assert errors == {"model": approx(0, abs=1e-6), "data": approx(-0.2)}
    assert found.classes["fusion"].error == approx(0, abs=1e-6)


def test_command_buffers_of_a_program_compiled_otherwise_have_classes(beside, predicted):
    names = [s.name for s in predicted.pricing.program.schedule]
    renamed = {n: f"{n.split('.')[0]}.9{n.split('.')[-1]}" for n in names}
    found = beside(renamed=renamed, graphs=True)
    assert (found.match.by_name, found.step_time.steps) == (False, 4)
    errors = {name: pair.error for name, pair in found.classes.items()}
    assert errors == {name: approx(0, abs=1e-6) for name in ("matmul", "fusion", "all-reduce")}


def test_kernels_of_command_buffers_are_joined_by_their_own_names(beside):
    found = beside(graphs=True, times={GEMM: 2.0})
    assert found.match.share == 1.0
    assert found.kernels[0].name == GEMM and found.kernels[0].seconds.error == approx(-0.5)


def test_steps_are_whole_wherever_the_recording_began_and_ended(beside, predicted):
    for cut in ({"before": 0.3}, {"after": 0.4}, {"before": 0.7, "after": 0.6}):
        found = beside(**cut)
        assert found.step_time.steps in (4, 5)
        assert found.classes["matmul"].error == approx(0, abs=0.05), cut
        assert found.step_time.seconds.error == approx(0, abs=0.05), cut


def test_the_number_of_steps_may_be_said(beside):
    found = beside(steps=2)
    assert found.step_time.steps == 2
    assert "tell of 4 steps, not of 2" in found.warnings[0]
    with pytest.raises(sc.InputError, match="holds 4 steps of the program, not 9"):
        beside(steps=9)
    for wrong in (0, -1, 1.5, True, 10**9):
        with pytest.raises(sc.InputError, match="must be a whole number"):
            beside(steps=wrong)


def test_time_between_steps_is_told_apart(beside):
    found = beside(gap=2e-3)
    assert found.match.between == approx(1.5e-3, rel=1e-3)  # three gaps over four steps
    assert found.time["host"].measured == approx(1.5e-3, rel=1e-3)
    assert "host" in found.explanation and "between two steps" in found.warnings[0]


def test_another_program_is_refused_by_its_modules(beside, predicted):
    names = {s.name: f"other.{n}" for n, s in enumerate(predicted.pricing.program.schedule)}
    with pytest.raises(sc.InputError, match=r"has jit_eval \(0% of its time .*\), not jit_step"):
        beside(module="jit_eval", renamed=names)
    assert beside(module="jit_train").match.share == 1.0  # the same step by another name


def test_a_profile_of_a_cpu_is_not_that_of_gpus(predicted, tmp_path):
    import jax
    import jax.numpy as jnp

    with jax.profiler.trace(str(tmp_path)):
        jax.block_until_ready(jax.jit(lambda x: x @ x)(jnp.ones((64, 64))))
    with pytest.raises(sc.InputError, match="is of CPU devices, the price of dgx-h100"):
        predicted.compare(tmp_path)
    (trace,) = tmp_path.glob("**/*.trace.json.gz")
    with pytest.raises(sc.InputError, match=r"is of CPU devices: give the \.xplane\.pb"):
        predicted.compare(trace)


def test_a_module_of_another_name_with_the_same_instructions_is_named(beside):
    (note,) = beside(module="jit_other").warnings
    assert note.startswith("jit_other was recorded and jit_step is priced")


def test_devices_that_take_unequal_times_are_named(predicted, beside, tmp_path):
    assert beside().warnings == ()
    path = tmp_path / "host.trace.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    for event in document["traceEvents"]:
        if event.get("ph") == "X" and event["pid"] == 2:
            event |= {"ts": 3 * event["ts"], "dur": 3 * event["dur"]}
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    found = predicted.compare(path)
    step = float(predicted.step_time)
    assert found.match.fastest_device == approx(step)
    assert found.match.slowest_device == approx(3 * step)
    assert found.step_time.seconds.measured == approx(2 * step)
    assert any("and what is measured is their mean" in text for text in found.warnings)
