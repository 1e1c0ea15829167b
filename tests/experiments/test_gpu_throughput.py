"""The GPU measurement on toys and the CPU: what it writes, what it does when things go wrong."""

import json
import math
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from experiments.gpu import machine, measure, predicted, table, throughput
from experiments.gpu.cases import cases, mesh_of, tiny_cases
from experiments.gpu.timing import Effort, time_windows
from scaling.compile.options import compiler_options
from scaling.meshes.catalog.load import accelerator, accelerator_names, load
from scaling.meshes.devices import absent_mesh, present_mesh
from scaling.models.execution import Execution
from scaling.parallelism.rules import rules_for
from scaling.run import read_run
from scaling.train.execution import execution_for

ROOT = Path(__file__).resolve().parents[2]
TINY = tiny_cases(1)[0]
FOREVER = math.inf


class OutOfMemory(RuntimeError):
    """Stands for the error of jax's runtime."""

    def __init__(self) -> None:
        super().__init__("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> SimpleNamespace:
    """One whole `--tiny` run in a process of its own, with four fake devices."""
    out = tmp_path_factory.mktemp("results")
    command = [sys.executable, "-m", "experiments.gpu.throughput", "--tiny", "--out", str(out)]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "4",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = out.rglob("throughput-*.json")
    text = path.read_text()
    return SimpleNamespace(path=path, text=text, document=json.loads(text), stdout=done.stdout)


def budget() -> throughput.Budget:
    return throughput.Budget(deadline=FOREVER)


def statuses(todo, measure_one, budget) -> list[tuple[int, str]]:
    """Batch and status of each outcome."""
    outcomes = throughput.run_cases(todo, measure_one, budget)
    return [(case["run"]["batch"]["global_batch"], case["status"]) for case in outcomes]


# --- the whole, once -----------------------------------------------------------------------------


@pytest.mark.slow
def test_tiny_run_writes_one_dated_document_with_every_key(tiny):
    document = tiny.document
    assert tiny.path.parent.name == "cpu"
    assert re.fullmatch(r"throughput-\d{4}-\d\d-\d\d\.json", tiny.path.name)
    assert document["date"].startswith(tiny.path.stem.removeprefix("throughput-"))
    assert document["schema"] == throughput.SCHEMA and document["finished"]
    assert [case["status"] for case in document["cases"]] == ["ok", "ok"]
    assert [read_run(case["run"]) for case in document["cases"]] == tiny_cases(4)
    assert {"python", "jax", "jaxlib", "flax", "optax"} <= document["versions"].keys()
    assert str(ROOT) not in tiny.text and str(Path.home()) + "/" not in tiny.text
    assert not re.search(r'[": ]/\w+/\w', tiny.text)  # names no folder of this machine
    assert (
        document["device"]["peak_bf16"] is None and "'cpu' is not known" in tiny.stdout + tiny.text
    )
    for case in document["cases"]:
        times = case["step_time"]
        each = [seconds / times["calls_per_window"] for seconds in times["window_seconds"]]
        assert times["min"] == min(each) <= times["median"] <= max(each) == times["max"]
        assert case["tokens_per_second"] * times["median"] == pytest.approx(case["tokens_per_step"])
        rate = case["flops_per_second_per_device"] * case["devices"] * times["median"]
        assert rate == pytest.approx(case["model_flops"])
        assert case["mfu"] is None and case["predicted"] is None
        assert case["loss_falls"] and case["loss"]["first"] == pytest.approx(math.log(256), abs=0.1)
        assert tiny.stdout.count(case["name"]) == 2  # its line and its row of the table


# --- cases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_every_case_fits_its_mesh(devices):
    for run in [*cases(devices), *tiny_cases(devices)]:
        rules_for(run, mesh_of(run))
        assert mesh_of(run).devices in (1, devices)
        assert run.precision.compute == "bf16" and run.precision.parameters == "fp32"


# --- when things go wrong ------------------------------------------------------------------------


def test_out_of_memory_case_is_kept_and_its_half_is_run():
    def measure_one(run):
        if run.batch.global_batch > 1:
            raise OutOfMemory
        return {}

    found = statuses([TINY], measure_one, budget())
    assert found == [(4, "out of memory"), (2, "out of memory"), (1, "ok")]


def test_failed_case_does_not_end_the_others():
    def measure_one(run):
        if run == TINY:
            raise ValueError("no kernel in /opt/cuda/kernels.cu\nand a long story")
        return {}

    outcomes = list(throughput.run_cases(tiny_cases(1), measure_one, budget()))
    assert [case["status"] for case in outcomes] == ["failed", "ok"]
    assert outcomes[0]["error"] == "ValueError: no kernel in kernels.cu"


def test_case_without_enough_time_is_not_run():
    started = []

    def measure_one(run):
        started.append(run)
        return {}

    late = throughput.Budget(deadline=time.monotonic() + throughput.FIRST_CASE - 1)
    assert [status for _, status in statuses(tiny_cases(1), measure_one, late)] == ["not run"] * 2
    assert not started


@pytest.mark.slow
def test_xla_attention_replaces_a_cudnn_kernel_that_does_not_compile():
    """cuDNN's attention cannot compile for a CPU, which is how the fallback is reached here."""
    execution = Execution(
        rules_for(TINY, mesh_of(TINY)), compute="bf16", remat="selective", attention_kernel="cudnn"
    )
    with jax.set_mesh(present_mesh(mesh_of(TINY), jax.devices()[:1])):
        program = measure.compile_step(TINY, execution, "cpu")
    assert program.execution.attention_kernel == "xla"
    assert program.note.startswith("cuDNN attention did not compile")
    assert measure.flash_calls(program.step) == 0


def test_out_of_memory_is_no_missing_kernel(monkeypatch):
    def compiled(*_):
        raise OutOfMemory

    monkeypatch.setattr(measure, "_compiled", compiled)
    execution = Execution(
        rules_for(TINY, mesh_of(TINY)), compute="bf16", remat="selective", attention_kernel="cudnn"
    )
    with pytest.raises(OutOfMemory):
        measure.compile_step(TINY, execution, "gpu")


@pytest.mark.deviceless
@pytest.mark.parametrize(("remat", "calls"), [("none", 2), ("selective", 2), ("full", 3)])
def test_gpu_program_counts_cudnn_attention_calls(monkeypatch, remat, calls):
    """Once forward and once backward; only "full" runs the forward kernel again."""
    run = replace(TINY, remat=remat)
    execution = execution_for(run, rules_for(run, mesh_of(run)), "cuda", 9.0)
    untuned = {"xla_gpu_autotune_level": 0}  # there is no device to tune on
    monkeypatch.setattr(measure, "compiler_options", lambda _: compiler_options("cuda") | untuned)
    with jax.set_mesh(absent_mesh(mesh_of(run), load("dgx-h200"))):
        program = measure.compile_step(run, execution, "cuda")
    assert program.note == "" and program.execution.attention_kernel == "cudnn"
    assert measure.flash_calls(program.step) == calls


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes", True),
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", True),
        ("INTERNAL: no kernel image is available", False),
    ],
)
def test_out_of_memory_is_recognised_by_its_message(message, expected):
    assert measure.is_out_of_memory(RuntimeError(message)) == expected


def test_loss_that_is_not_finite_is_saved_as_null(tmp_path):
    first = measure._finite(math.nan)
    throughput.save({"loss": first}, tmp_path / "a" / "results.json")
    assert json.loads((tmp_path / "a" / "results.json").read_text()) == {"loss": None}
    assert not list(tmp_path.rglob("*.partial"))


def test_earlier_results_of_the_day_are_kept(tmp_path):
    names = []
    for _ in range(3):
        path = throughput.result_path(tmp_path, "nvidia-h200", "2026-11-20")
        throughput.save({}, path)
        names.append(path.name)
    day = "throughput-2026-11-20"
    assert names == [f"{day}.json", f"{day}-2.json", f"{day}-3.json"]


# --- rates ---------------------------------------------------------------------------------------


def test_mfu_is_model_flops_over_time_devices_and_peak():
    """989.4e12 FLOP/s: 4e15 FLOPs on 8 devices in 2 s are 250e12 on each, 25.27 % of the peak."""
    case = document()["cases"][0] | {"model_flops": 4e15, "devices": 8}
    case["step_time"] = {"median": 2.0}
    rated = measure.with_rates(case, peak=accelerator("h200-sxm").peak("bf16"), matmul=500e12)
    assert rated["flops_per_second_per_device"] == 250e12
    assert rated["mfu"] == pytest.approx(0.25268, abs=1e-5)
    assert rated["of_matmul"] == 0.5


def test_every_known_device_is_in_the_catalogue():
    assert set(machine.CATALOGUE_NAMES.values()) <= set(accelerator_names())
    for kind in machine.CATALOGUE_NAMES:
        assert machine.identify(kind).peak > 50e12


@pytest.mark.parametrize("kind", ["NVIDIA H100 PCIe", "NVIDIA H200 NVL", "nvidia h200", "cpu", ""])
def test_unknown_device_name_matches_no_chip(kind):
    chip = machine.identify(kind)
    assert chip.accelerator is None and chip.peak is None and repr(kind) in chip.note


# --- the machine ---------------------------------------------------------------------------------


def test_nvidia_smi_gives_a_row_per_gpu(monkeypatch):
    monkeypatch.setattr(machine, "_output", lambda *_: "345 MHz, 71.2 W\n1980 MHz, 690.0 W")
    rows = machine.nvidia_smi(("clocks.sm", "power.draw"))
    assert rows[1] == {"clocks.sm": "1980 MHz", "power.draw": "690.0 W"} and len(rows) == 2


def test_absolute_paths_are_shortened_and_nothing_else_is():
    text = "3.2 GB/s of a/b.py; tokens/s"
    assert machine.without_paths(text) == text
    assert machine.without_paths("--dump=/opt/my-1/file.txt x") == "--dump=file.txt x"


# --- timing --------------------------------------------------------------------------------------


def test_window_has_at_most_the_largest_number_of_calls():
    calls = []
    x = jnp.zeros(())

    def call():
        calls.append(1)
        return x

    timed = time_windows(call, Effort(warm_up=3, windows=4, window_seconds=10.0, most_calls=7))
    assert timed.calls == 7 and len(timed.seconds) == 4
    assert len(calls) == 3 + 4 * 7


# --- the table -----------------------------------------------------------------------------------


def document(**changes) -> dict:
    case = {
        "status": "ok",
        "name": "gpt2-124m 32x1024 none",
        "attention": "cudnn",
        "flash_calls": 2,
        "note": "",
        "compile_seconds": 31.0,
        "step_time": {"median": 0.0714, "min": 0.0712, "max": 0.0719},
        "tokens_per_second": 458_931.0,
        "flops_per_second_per_device": 392e12,
        "mfu": 0.3962,
        "memory": {"compiled": {"peak": 34 * 2**30}, "peak_in_use": 33 * 2**30, "is_own": True},
        "loss": {"first": 10.98, "last": 10.5, "steps": 100},
        "loss_falls": True,
        "predicted": {"step_time": 0.0757, "memory": 32 * 2**30},
        "errors": {"step_time": 0.0602, "memory": -0.0303, "compiled_memory": -0.0588},
    }
    lost = {"status": "out of memory", "name": "big", "error": "9 bytes"}
    return {
        "device": {"kind": "NVIDIA H200", "count": 1, "peak_bf16": 989.4e12, "note": ""},
        "ceilings": {"matmul": {"flops_per_second": 788e12}, "copy": {"bytes_per_second": 4.3e12}},
        "cases": [case | changes, lost],
    }


def test_the_table_shows_milliseconds_percent_and_both_peaks():
    text = table.table(document())
    assert "788 TFLOP/s of 989 dense peak" in text and "4.3 TB/s" in text
    (row,) = [line for line in text.splitlines() if line.startswith("gpt2")]
    for cell in ("71.40", "71.20-71.90", "458,931", "392", "39.6%", "33 / 34", "75.70", "+6.0%"):
        assert cell in row
    assert re.search(r"^big +out of memory$", text, re.MULTILINE)


def test_errors_are_predicted_over_measured():
    case = document()["cases"][0]
    assert predicted.errors(case) == {
        "step_time": pytest.approx(0.0757 / 0.0714 - 1),
        "memory": pytest.approx(32 / 33 - 1),
        "compiled_memory": pytest.approx(32 / 34 - 1),
    }
