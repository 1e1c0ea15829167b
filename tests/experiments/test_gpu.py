"""The GPU measurement on toys and the CPU: its stages, what it writes, when things go wrong."""

import json
import math
import os
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.gpu import __main__ as driver
from experiments.gpu import kernels, machine, measure, predicted, record, table, worker
from experiments.gpu.cases import cases, label, mesh_of, tiny_cases
from experiments.gpu.kernel_cases import KERNELS, AttentionCase, ExpertsCase
from experiments.gpu.stages import FINAL, Stage, next_stage, stages
from experiments.gpu.timing import Effort, time_windows
from scaling.compile.options import compiler_options
from scaling.meshes.catalog.load import accelerator, accelerator_names, load
from scaling.meshes.devices import absent_mesh, present_mesh
from scaling.models.execution import Execution
from scaling.run import read_run
from scaling.run.parallelism.rules import rules_for
from scaling.training.execution import execution_for
from tests.test_arrows import GUARD

ROOT = Path(__file__).resolve().parents[2]
TINY = tiny_cases(1)[0]
FOREVER = math.inf


class OutOfMemory(RuntimeError):
    """Stands for the error of jax's runtime."""

    def __init__(self) -> None:
        super().__init__("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")


def empty(**found) -> dict:
    """Results of a whole measurement on one device; `found`: status by name of stage."""
    there = {name.replace("_", " "): {"status": status} for name, status in found.items()}
    return {"tiny": False, "date": "2026-01-31", "commit": None, "stages": there}


# --- stages --------------------------------------------------------------------------------------


def test_stages_stand_in_the_order_of_their_worth_and_each_once():
    kinds = [stage.kind for stage in stages(empty())]
    first = [kind for kind, before in zip(kinds, ["", *kinds], strict=False) if kind != before]
    assert first[:5] == ["machine", "kernel", "calibration", "case", "absent"]
    assert kinds.index("pytorch") > kinds.index("calibration") and kinds[-1] == "absent"
    names = [stage.name for stage in stages(empty())]
    assert len(set(names)) == len(names)
    labels = {label(run) for run in cases(1)}
    for kind in ("case", "absent"):
        assert {stage.argument for stage in stages(empty()) if stage.kind == kind} == labels


def test_a_case_without_room_is_followed_by_its_half():
    big, half = "case llama3-1b 16x2048 full", "case llama3-1b 8x2048 full"
    document = empty()
    document["stages"][big] = {"status": "out of memory"}
    names = [stage.name for stage in stages(document)]
    assert names.index(half) == names.index(big) + 2  # after the absent program of the big one
    assert half not in [stage.name for stage in stages(empty())]


def test_all_devices_are_used_once_the_machine_is_known():
    document = empty()
    document["stages"]["machine"] = {"status": "ok", "result": {"device": {"count": 8}}}
    assert [s for s in stages(document) if "fsdp=8" in s.name]
    assert not [s for s in stages(empty()) if "fsdp" in s.name]


def test_the_next_stage_is_the_first_that_is_not_done_and_that_the_time_is_enough_for():
    pick = lambda document, only="", tried=(), left=FOREVER, again=False: next_stage(
        document, only, dict.fromkeys(tried), left, again
    )
    assert pick(empty()) == Stage("machine")
    assert pick(empty(machine="ok")).kind == "kernel"
    for status in FINAL:
        assert pick(empty(machine=status)).kind == "kernel"
    assert pick(empty(machine="interrupted")) == Stage("machine")
    assert pick(empty(machine="ok"), again=True) == Stage("machine")
    assert pick(empty(machine="ok"), again=True, tried=["machine"]).kind == "kernel"
    assert pick(empty(), only="calib") == Stage("calibration")
    assert pick(empty(), only="calib", left=Stage("calibration").seconds - 1) is None
    assert pick(empty(), left=Stage("kernel").seconds).kind == "kernel"  # the machine takes longer
    assert pick(empty(), only="no such stage") is None


# --- the driver ----------------------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Runs the driver on pretended stages; returns the names of those that ran."""
    monkeypatch.setattr(driver, "nvidia_smi", lambda names: [{"name": "NVIDIA H100"}])

    def run(outcome, *words: str) -> list[str]:
        ran = []

        def run_stage(stage, folder, left, torch_python):
            ran.append(stage.name)
            return {"seconds": 1.0, **outcome(stage, len(ran))}

        monkeypatch.setattr(driver, "run_stage", run_stage)
        driver.main(["--out", str(tmp_path), *words])
        return ran

    return run


def fails(stage, number) -> dict:
    return {"status": "failed", "error": "no"}


def results(tmp_path) -> dict:
    (folder,) = tmp_path.glob("*-gpu-nvidia-h100")
    return record.read(folder)


def test_a_measurement_that_is_killed_keeps_its_results_and_goes_on_there(measured, tmp_path):
    def dies(stage, number):
        if number == 3:
            raise KeyboardInterrupt
        return fails(stage, number)

    with pytest.raises(KeyboardInterrupt):
        measured(dies)
    names = [stage.name for stage in stages(empty())]
    assert list(results(tmp_path)["stages"]) == names[:2]
    assert names[1] in next(tmp_path.rglob("results.md")).read_text()
    assert measured(fails) == names[2:]
    assert measured(fails) == []
    assert measured(fails, "--again", "--only", "kernel") == [n for n in names if "kernel" in n]


def test_a_stage_that_two_calls_could_not_end_is_left_alone(measured, tmp_path):
    cut = lambda *_: {"status": "interrupted", "error": "ended after 9 s"}
    for status in ("interrupted", "timed out"):
        assert measured(cut, "--only", "calibration") == ["calibration"]
        assert results(tmp_path)["stages"]["calibration"]["status"] == status
    assert measured(cut, "--only", "calibration") == []


def test_a_calibration_that_is_given_is_not_measured_again(measured, tmp_path):
    (tmp_path / "mine.json").write_text("{}")
    ran = measured(fails, "--calibration", str(tmp_path / "mine.json"))
    assert ran and "calibration" not in ran
    (folder,) = tmp_path.glob("*-gpu-*")
    assert (folder / record.CALIBRATION).read_text() == "{}"


def test_a_list_names_each_stage_and_runs_none(measured, capsys):
    assert measured(fails, "--list") == []
    assert len(capsys.readouterr().out.splitlines()) == len(stages(empty()))


def test_no_stage_begins_without_time(measured, tmp_path, capsys):
    assert measured(fails, "--minutes", "0.1") == []
    assert "stages are left" in capsys.readouterr().out


def test_a_process_that_breaks_says_its_last_words(monkeypatch, tmp_path):
    def breaks(command, env, log, limit):
        log.write("CUDA error in /opt/cuda/kernel.cu\n\n")
        log.flush()
        return -11

    monkeypatch.setattr(driver, "_status", breaks)
    found = driver.run_stage(Stage("kernel", "one"), tmp_path, 100.0)
    assert found["status"] == "crashed" and found["error"] == "exit -11: CUDA error in kernel.cu"
    with tarfile.open(record.archive(tmp_path, "kernel one")) as tar:
        assert tar.getnames() == ["kernel-one", f"kernel-one/{driver.LOG}"]


@pytest.mark.parametrize(("left", "status"), [(5.0, "interrupted"), (1e9, "timed out")])
def test_a_process_is_ended_by_the_call_or_by_its_own_limit(monkeypatch, tmp_path, left, status):
    monkeypatch.setattr(driver, "_status", lambda *_: None)
    assert driver.run_stage(Stage("machine"), tmp_path, left)["status"] == status


def test_an_ended_process_takes_its_children_along(monkeypatch, tmp_path):
    said, wait = tmp_path / "pid", subprocess.Popen.wait

    def late(self, timeout=None):
        """The time is up as soon as the child runs."""
        while timeout is not None and not (said.exists() and said.read_text().endswith("\n")):
            time.sleep(0.01)
        if timeout is not None:
            raise subprocess.TimeoutExpired("sh", timeout)
        return wait(self)

    monkeypatch.setattr(subprocess.Popen, "wait", late)
    command = ["sh", "-c", f"sh -c 'echo $$ > {said}; exec sleep 600' & wait"]
    with (tmp_path / "log").open("w") as log:
        assert driver._status(command, dict(os.environ), log, 1.0) is None
    child = Path("/proc") / said.read_text().strip() / "stat"
    while child.exists() and child.read_text().split()[2] != "Z":  # for ever, if it lives on
        time.sleep(0.01)


# --- what is brought home ------------------------------------------------------------------------


def test_results_are_packed_into_few_files_the_first_stages_first(monkeypatch, tmp_path):
    monkeypatch.setattr(record, "MOST_BYTES", 5000)
    folder, names = tmp_path / "results", [f"case {number}" for number in range(30)]
    record.save({"stages": {}}, folder)
    (tmp_path / "raw").mkdir()
    for name in names:
        noise = np.random.default_rng(0).bytes(9000 if name == "case 1" else 900)
        (tmp_path / "raw" / "x").write_bytes(noise)
        record.keep_raw(folder, name, tmp_path / "raw")
    left_out = record.pack(folder, tmp_path / "home", [*names, "never ran"])
    files = sorted(path.name for path in (tmp_path / "home").iterdir())
    assert files == [*(f"raw-{n}.tar" for n in range(1, 6)), "results.json"]
    packed = []
    for file in files[:-1]:
        with tarfile.open(tmp_path / "home" / file) as tar:
            packed += [Path(name).name.removesuffix(".tar.gz") for name in tar.getnames()]
    assert left_out[0] == "case 1" and packed[:2] == ["case-0", "case-2"]
    assert sorted(packed) == sorted(n.replace(" ", "-") for n in names if n not in left_out)


def test_toys_do_not_go_on_in_the_folder_of_a_measurement(tmp_path):
    folder = tmp_path / "2026-01-31-gpu-cpu"
    record.save({"tiny": False}, folder)
    assert record.find_folder(tmp_path, "cpu", "2026-02-01", False) == folder
    other = record.find_folder(tmp_path, "cpu", "2026-02-01", True)
    assert other == tmp_path / "2026-02-01-gpu-cpu"


# --- kernels -------------------------------------------------------------------------------------


def test_a_kernel_is_right_within_its_tolerance_and_nan_never_is():
    one = jnp.ones(3)
    judged = lambda *found: kernels._judged(("out",), found, (one,), 0.01)
    assert judged(one * 1.005)["right"] and not judged(one * 1.02)["right"]
    nan = judged(one.at[1].set(jnp.nan))
    assert not nan["right"] and nan["errors"] == {"out": None}


def test_the_reference_of_products_is_numpys_group_by_group():
    noise = np.random.default_rng(0)
    x, w, dy = (noise.standard_normal(s).astype(np.float32) for s in ((9, 4), (3, 4, 5), (9, 5)))
    y, dx, dw = kernels.exact_products(x, w, dy, np.array([4, 0, 3]), 4)
    for group, rows in ((0, slice(0, 4)), (1, slice(4, 4)), (2, slice(4, 7))):
        np.testing.assert_allclose(y[rows], x[rows] @ w[group], rtol=1e-5)
        np.testing.assert_allclose(dx[rows], dy[rows] @ w[group].T, rtol=1e-5)
        np.testing.assert_allclose(dw[group], x[rows].T @ dy[rows], rtol=1e-5, atol=1e-6)
    assert not y[7:].any() and not dx[7:].any()


@pytest.mark.parametrize(("groups", "rows"), [(4, 64), (8, 16384), (32, 32768)])
def test_uneven_loads_leave_a_group_and_some_rows_empty(groups, rows):
    sizes = kernels.uneven_sizes(groups, rows)
    assert sizes[kernels.EMPTY] == 0 and 0.9 * rows - groups < sizes.sum() < rows


@pytest.mark.deviceless
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_compiles_for_an_absent_h100(monkeypatch, name):
    monkeypatch.setattr(kernels, "on_gpu", lambda: True)
    case, cluster = KERNELS[name], predicted.home("h100-sxm")
    mesh = absent_mesh(mesh_of(TINY), cluster)
    place = jax.NamedSharding(mesh, jax.P())
    like = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
    if isinstance(case, AttentionCase):
        drawn = jax.eval_shape(lambda: kernels.attention_inputs(case, *case.timed))
        steps, calls = {"both": kernels.gradients_of(kernels.kernel_of(case))}, "__cudnn$fmha"
    elif isinstance(case, ExpertsCase):
        drawn = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in kernels.experts_shapes(case)]
        drawn.insert(0, jax.ShapeDtypeStruct((case.tokens, case.choices), jnp.int32))
        steps, calls = {"both": kernels.both_passes(case)}, "grouped_matmul"
    else:
        E, K, N, R = case.groups, case.inputs, case.outputs, case.rows
        drawn = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((R, K), (E, K, N), (R, N))]
        drawn.append(jax.ShapeDtypeStruct((E,), jnp.int32))
        steps, calls = kernels.PRODUCTS, "grouped_matmul"
    for step in steps.values():
        with jax.set_mesh(mesh):  # tells jax from 0.11 on of which GPU Pallas' kernels are
            lowered = jax.jit(step).lower(*map(like, drawn))
        untuned = {"xla_gpu_autotune_level": 0}  # there is no device to tune on
        assert calls in lowered.compile(compiler_options=untuned).as_text()


# --- cases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_every_case_fits_its_mesh(devices):
    for run in [*cases(devices), *tiny_cases(devices)]:
        rules_for(run, mesh_of(run))
        assert mesh_of(run).devices in (1, devices)
        assert run.precision.compute == "bf16" and run.precision.parameters == "fp32"


# --- when things go wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (OutOfMemory(), "out of memory", "OutOfMemory: RESOURCE_EXHAUSTED"),
        (ValueError("no kernel in /opt/cuda/kernels.cu\nand a long story"), "failed",
         "ValueError: no kernel in kernels.cu"),
        (worker.NotPossible("there is no PyTorch"), "not possible", "there is no PyTorch"),
    ],
)  # fmt: skip
def test_a_stage_without_a_result_says_why(monkeypatch, tmp_path, error, status, said):
    def breaks(work):
        raise error

    monkeypatch.setitem(worker.KINDS, "machine", breaks)
    found = worker.outcome(Stage("machine"), worker.Work("", empty(), tmp_path, tmp_path, ""))
    assert found["status"] == status and found["error"].startswith(said)


def test_a_python_without_pytorch_is_named(tmp_path):
    work = worker.Work("gpt2-124m 32x1024", empty(), tmp_path, tmp_path, "no-such-python")
    assert "--torch-python" in worker.outcome(Stage("pytorch", work.argument), work)["error"]


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
    record.save({"loss": measure._finite(math.nan)}, tmp_path / "a")
    assert json.loads((tmp_path / "a" / record.RESULTS).read_text()) == {"loss": None}
    assert not list(tmp_path.rglob("*.partial"))


# --- rates ---------------------------------------------------------------------------------------


def test_mfu_is_model_flops_over_time_devices_and_peak():
    """989.4e12 FLOP/s: 4e15 FLOPs on 8 devices in 2 s are 250e12 on each, 25.27 % of the peak."""
    case = {"model_flops": 4e15, "devices": 8, "step_time": {"median": 2.0}, "predicted": {}}
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
    """Invented results."""
    time = {"median": 0.0714, "min": 0.0712, "max": 0.0719}
    case = {
        "attention": "cudnn",
        "step_time": time,
        "tokens_per_second": 458_931.0,
        "flops_per_second_per_device": 392e12,
        "mfu": 0.3962,
        "memory": {"compiled": {"peak": 34 * 2**30}, "peak_in_use": 33 * 2**30},
        "loss_falls": True,
        "counts": {"matmul": {"calls": 7.0, "flops": 3e12, "bytes": 5e9}},
        "compared": {"shipped": {"time": {"compute": {
            "predicted": 0.07, "measured": 0.08, "error": -0.125}}}},
        "errors": {"shipped": {"step_time": 0.0602}, "calibrated": {"step_time": -0.011}},
    }  # fmt: skip
    machine = {
        "device": {"kind": "NVIDIA H200", "count": 1, "peak_bf16": 989.4e12, "note": ""},
        "ceilings": {"matmul": {"flops_per_second": 788e12}, "copy": {"bytes_per_second": 4.3e12}},
        "driver": [{"name": "NVIDIA H200", "power.limit": "700.00 W"}],
        "versions": {"jax": "0.11.2"},
        "commit": "abc",
    }
    products = {
        "right": False,
        "tolerance": 0.01,
        "errors": {"y": 0.002, "dx": 0.03},
        "rates": {"y": {"flops_per_second": 5e14, "predicted": 0.003, "time": {"median": 0.004}}},
    }
    absent = {
        "predicted": {"shipped": {"step_time": 0.07854}},
        "counts": {"matmul": {"calls": 9.0, "flops": 3e12, "bytes": 6e9}},
    }
    name = "gpt2-124m 32x1024 none"
    done = {
        "machine": machine,
        "kernel products mixtral": products,
        f"case {name}": case | changes,
        f"absent {name}": absent,
        "pytorch gpt2-124m 32x1024": {
            "tokens_per_second": {"jax": 500.0, "torch": 400.0}, "ratio": 1.25},
    }  # fmt: skip
    found = {name: {"status": "ok", "result": result} for name, result in done.items()}
    lost = {"case llama3-1b 8x2048 selective": {"status": "out of memory", "error": "9 bytes"}}
    return empty() | {"stages": found | lost}


def test_the_table_shows_each_figure_beside_what_was_predicted():
    text = table.report(document())
    for words in (
        "# 1 x NVIDIA H200, 2026-01-31",
        "788 TFLOP/s of 989 dense peak; copy 4.3 TB/s",
        "power.limit 700.00 W; jax 0.11.2; commit abc",
        "| products mixtral | NO | 3.00% (limit 1%) | y | 4.000 | 500 | 3.000 |",
        "| gpt2-124m 32x1024 none | cudnn | 71.40 | 71.20-71.90 | 458,931 | 392 | 39.6% | 33 / 34 "
        "| +6.0% | -1.1% | +10.0% |",
        "| gpt2-124m 32x1024 none | shipped | compute | 70.00 | 80.00 | -12.5% |",
        "| gpt2-124m 32x1024 none | matmul | 7 | 9 | 3 | 3 | 5 | 6 |",
        "| gpt2-124m 32x1024 | 500 | 400 | 1.25 |",
        "| case llama3-1b 8x2048 selective | out of memory | 9 bytes |",
    ):
        assert words in text, words


def test_a_stage_that_ends_says_what_is_wrong_with_it():
    result = document(loss_falls=False)["stages"]["case gpt2-124m 32x1024 none"]
    stage = Stage("case", "gpt2-124m 32x1024 none")
    assert "THE LOSS DID NOT FALL" in table.line(stage, result | {"seconds": 61.0})
    wrong = document()["stages"]["kernel products mixtral"] | {"seconds": 9.0}
    assert table.line(Stage("kernel", "products mixtral"), wrong) == "WRONG (9 s)"


def test_errors_are_predicted_over_measured():
    case = document()["stages"]["case gpt2-124m 32x1024 none"]["result"]
    guess = {"step_time": 0.0757, "memory": 32 * 2**30}
    assert predicted.errors(guess, case) == {
        "step_time": pytest.approx(0.0757 / 0.0714 - 1),
        "memory": pytest.approx(32 / 33 - 1),
        "compiled_memory": pytest.approx(32 / 34 - 1),
    }


# --- the whole, once -----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_tiny_measurement_runs_on_little_and_in_two_calls(tmp_path):
    """All stages on the CPU, in processes that may import jax, flax, optax, chex and no more."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(GUARD)
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "2",
        "PYTHONPATH": f"{tmp_path / 'path'}:{ROOT}",
    }
    command = [sys.executable, "-m", "experiments.gpu", "--tiny", "--out", str(tmp_path)]

    def call(*words: str) -> str:
        words = (*command, "--minutes", "30", *words)
        done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=ROOT)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    first = call("--only", "products")
    assert first.startswith("kernel products mixtral ... right")
    text = call("--pack", str(tmp_path / "home"))
    assert "kernel products mixtral ..." not in text and "all stages are done" in text
    (folder,) = tmp_path.glob("*-gpu-cpu")
    document = record.read(folder)
    found = document["stages"]
    assert set(found) == {stage.name for stage in stages(document)}
    for stage in stages(document):
        possible = {"ok", "not possible"} if stage.kind in ("absent", "pytorch") else {"ok"}
        assert found[stage.name]["status"] in possible, found[stage.name]
    assert [found[f"case {label(run)}"]["result"]["run"] for run in tiny_cases(2)]
    for run in tiny_cases(2):
        case = found[f"case {label(run)}"]["result"]
        assert read_run(case["run"]) == run
        times = case["step_time"]
        each = [seconds / times["calls_per_window"] for seconds in times["window_seconds"]]
        assert times["min"] == min(each) <= times["median"] <= max(each) == times["max"]
        assert case["tokens_per_second"] * times["median"] == pytest.approx(case["tokens_per_step"])
        assert case["loss_falls"] and case["loss"]["first"] == pytest.approx(math.log(256), abs=0.1)
        assert case["mfu"] is None and case["predicted"]["calibrated"]["step_time"] > 0
        assert case["compared"]["calibrated"]["match"]["share"] > 0.5
        assert case["compared"]["calibrated"]["time"]["compute"]["measured"] > 0
    home = {path.name for path in (tmp_path / "home").iterdir()}
    assert home == {"results.json", "results.md", "calibration.json", "raw-1.tar"}
    for name in ("results.json", "results.md"):
        said = (folder / name).read_text()
        assert str(ROOT) not in said and str(Path.home()) + "/" not in said
        assert str(tmp_path) not in said


@pytest.mark.slow
@pytest.mark.deviceless
@pytest.mark.parametrize("run", cases(1), ids=label)
def test_every_case_compiles_for_an_absent_h100_and_is_priced(run):
    step, mesh = worker.absent_step(run, predicted.home("h100-sxm"))
    assert bool(measure.flash_calls(step)) == (run.attention == "flash")
    assert ("grouped_matmul" in step.as_text()) == (run.model.moe is not None)
    profiles = predicted.profiles_of("h100-sxm", Path("none"))
    found = predicted.guesses(step, mesh, run, profiles)
    assert 0 < predicted.as_dict(found["shipped"])["step_time"] < 60
    assert predicted.counts(found["shipped"][0].program)["matmul"]["flops"] > 0
