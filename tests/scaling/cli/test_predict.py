"""`scaling predict` as a user meets it: one document, one message, one line per run.

The step of a small run is compiled for this machine's CPU, once for all tests of this file.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from importlib.resources import files

import jax
import pytest

import scaling as sc
from scaling.api import calibrate, predict
from scaling.api.pricing import Pricing, _changes_without_effect, price_program
from scaling.api.result import PredictionResult
from scaling.cli import predict as predict_command
from scaling.meshes import catalog
from scaling.meshes.shape import MeshShape
from scaling.profiles.calibrations import calibration_path
from scaling.profiles.io import profile_of, write_profile
from scaling.profiles.machine import host, versions
from scaling.profiles.profile import CollectiveFit
from scaling.program.ir import COLLECTIVE_KINDS, Collective, Program
from tests.scaling.cli.running import check_refused, run
from tests.scaling.host_profile import HERE, host_profile

PROFILE = host_profile(
    devices=4,
    collectives=tuple(
        CollectiveFit(kind, ranks, 4 // ranks, 1e-5, 1e9, HERE)
        for kind in COLLECTIVE_KINDS
        for ranks in (2, 4)
    ),
    versions=versions(),
)
SMALL = {
    "name": "small",
    "model": {
        "vocab_size": 64, "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32, "mlp": "swiglu",
        "norm": "rmsnorm", "positions": "rope",
    },
    "batch": {"global_batch": 4, "seq_len": 8},
    "mesh": {"fsdp": 2, "tensor": 2},
    "precision": {"compute": "fp32"},
}  # fmt: skip


FIVE = ("compute", "optimizer", "exposed_communication", "bubble", "host")


def keep_calibration(profile=PROFILE):
    path = calibration_path(profile.machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_profile(profile, path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A cache and a run.json; what is compiled once is found there by the next test."""
    place = tmp_path_factory.mktemp("predict")
    (place / "small.json").write_text(json.dumps(SMALL))
    (place / "small.py").write_text("def run(): ...")
    return place


@pytest.fixture
def cli(folder, monkeypatch, capsys):
    """Runs `scaling predict WORDS` in that folder, without advice: (code, stdout, stderr)."""
    assert jax.device_count() == 8
    monkeypatch.setattr(predict_command, "MOST_SECONDS", 0.0)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SCALING_CACHE", str(folder / "cache"))
    keep_calibration()

    return partial(run, capsys, "predict")


def document(result):
    """The one document on stdout of a command that went well."""
    code, out, _ = result
    assert code == 0 and out.count("\n") == 1
    return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


# --- what is printed ----------------------------------------------------------------------------


def test_json_is_one_document_whose_parts_sum(cli):
    found = document(cli("small.json", "--json"))
    time = found["time"]
    assert sum(time[name] for name in FIVE) == pytest.approx(found["step_time"])
    memory = found["memory"]
    apart = ("peak", "pinned_host", "capacity", "fits", "in_use", "needed", "fit_probability")
    apart += ("host_needed", "host_capacity")
    owners = [v for k, v in memory.items() if k not in apart]
    assert sum(owners) == pytest.approx(memory["peak"])
    assert (found["name"], found["source"], found["devices"]) == ("small", "compiled", 4)
    assert found["grade"] == "calibrated" and found["warnings"] == []
    assert {c["axis"] for c in found["collectives"]} >= {"fsdp", "tensor"}
    assert {c["dtype"] for c in found["collectives"]} == {"fp32"}
    causal = document(cli("small.json", "--json", "--causal-flops"))
    assert causal["model_flops"] < found["model_flops"]


def test_the_page_names_the_run_and_its_mesh(cli):
    code, out, _ = cli("small.json")
    assert code == 0
    assert out.startswith(
        "small on fsdp=2,tensor=2 of host, 4 devices, compiled program, calibrated"
    )
    assert "\nbottleneck: " in out


def test_explained_it_shows_the_kernels_and_their_evidence(cli):
    result = cli("small.json", "--explain", "--json")
    document(result)
    assert "how each figure comes about" in result[2]
    code, out, _ = cli("small.json", "--explain")
    assert code == 0
    head = next(line for line in out.splitlines() if line.startswith("operation "))
    assert head.split("  ")[0] == "operation" and head.endswith("rate")  # no column of estimates
    assert "XLA has no estimate of its own" in out
    assert "belong to no known part of the model" in out
    assert "calibrated: scaling calibrate on a test" in " ".join(out.split())


def test_a_trace_and_the_compiled_text_are_written(cli, folder):
    code, _, err = cli("small.json", "--trace", "t.json", "--dump-hlo", "small.hlo", "--json")
    assert code == 0 and "trace: t.json" in err
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    assert any(event["name"].startswith("all-gather[fsdp] layers/") for event in events)
    assert (folder / "small.hlo").read_text().startswith("HloModule ")


def test_what_if_changes_the_figure_and_says_so(cli):
    before = document(cli("small.json", "--json"))["step_time"]
    after = document(cli("small.json", "--json", "--what-if", "latency x10"))["step_time"]
    assert after > 2 * before
    assert "what if latency x10" in cli("small.json", "--what-if", "latency x10")[1]


LOCAL, ACROSS = (
    Program(
        "p",
        "compiled",
        mesh.sizes,
        (Collective("g", kind="all-gather", axes=("fsdp",), bytes=1e9),),
    )
    for mesh in (MeshShape(fsdp=8), MeshShape(fsdp=16))
)


@pytest.mark.parametrize(
    ("program", "changes", "idle"),
    [
        (LOCAL, ["network x4"], ["network x4"]),
        (LOCAL, ["nvlink x4"], []),
        (LOCAL, ["nvlink x2", "network x2"], ["network x2"]),
        (LOCAL, ["pcie x3", "latency x2", "peak x2"], ["pcie x3"]),
        (ACROSS, ["network x0.5"], []),
    ],
)
def test_a_change_of_links_that_hold_up_nothing_is_said(program, changes, idle):
    cluster = catalog.load("dgx-h100", nodes=2)
    pricing = Pricing(program, cluster, profile_of(cluster.accelerator), changes=tuple(changes))
    found = list(_changes_without_effect(pricing, price_program(pricing)))
    assert [text.split("'")[1] for text in found] == idle
    assert all("changed nothing" in text for text in found)


def test_what_does_not_fit_is_no_error(cli, folder):
    """The cluster may stand in the run; its figures too, as texts with a unit."""
    stated = SMALL | {"cluster": {"name": "host", "overrides": {"memory": "10kB"}}}
    (folder / "stated.json").write_text(json.dumps(stated))
    found = document(cli("stated.json", "--json"))
    assert found["memory"]["fits"] is False and found["memory"]["capacity"] == 1e4
    assert any("does not fit" in text for text in found["warnings"])
    assert found["step_time"] > 0


@pytest.mark.parametrize(
    ("words", "most", "said"),
    [([], 20.0, ["next: --set remat=none"]), ([], 0.0, []), (["--json"], 20.0, [])],
)
def test_advice_costs_more_compiles_only_after_a_quick_one(cli, monkeypatch, words, most, said):
    monkeypatch.setattr(predict_command, "MOST_SECONDS", most)
    monkeypatch.setattr(PredictionResult, "advice", lambda self: ["--set remat=none"])
    code, out, _ = cli("small.json", *words)
    assert code == 0 and [line for line in out.splitlines() if line.startswith("next:")] == said


# --- calibration --------------------------------------------------------------------------------


def test_a_machine_that_was_never_measured_is_measured_first(cli, folder, monkeypatch):
    asked = []

    def measure(devices):
        asked.append(devices)
        keep_calibration()

    calibration_path(host(4)).unlink()
    monkeypatch.setattr(calibrate, "calibrate_in_subprocess", measure)
    result = cli("small.json", "--cluster", "host", "--json")
    assert document(result)["grade"] == "calibrated"
    assert asked == [4] and "this machine is measured first, quickly, with 4 devices" in result[2]


def test_the_measurement_runs_in_a_process_of_its_own(cli, monkeypatch):
    """That fails here: what it would do takes half a minute."""
    ran = []

    def run(command, stdout, env):
        ran.append((command[-4:], stdout, env["JAX_PLATFORMS"]))
        return subprocess.CompletedProcess(command, 1)

    calibration_path(host(4)).unlink()
    monkeypatch.setattr(subprocess, "run", run)
    code, out, err = cli("small.json", "--cluster", "host", "--json")
    assert (
        code == 2 and "could not be measured: scaling calibrate --quick --devices 4 failed" in err
    )
    assert json.loads(out)["name"] == "small.json"
    assert ran == [(["calibrate", "--quick", "--devices", "4"], 2, "cpu")]


def test_bad_input_is_found_before_anything_is_measured(cli, monkeypatch):
    calibration_path(host(4)).unlink()
    fail = lambda devices: pytest.fail("measured")
    monkeypatch.setattr(calibrate, "calibrate_in_subprocess", fail)
    check_refused(cli("small.json", "--mesh", "fsdp=3"), "not divisible by fsdp=3")


def test_a_calibration_file_of_another_machine_is_used_with_a_warning(cli, folder):
    write_profile(replace(PROFILE, machine="2 x cpu (Other, 1 cores)"), folder / "other.json")
    found = document(cli("small.json", "--calibration", "other.json", "--json"))
    assert any("the calibration was measured on 2 x cpu" in text for text in found["warnings"])


@pytest.mark.slow
def test_a_pipeline_is_predicted_with_its_hops_and_its_bubble(cli, folder):
    """Two stages, four microbatches: five ticks, in one of which a stage is idle."""
    deep = SMALL | {"batch": {"global_batch": 16, "seq_len": 8, "microbatches": 4}}
    (folder / "deep.json").write_text(json.dumps(deep))
    found = document(cli("deep.json", "--mesh", "fsdp=2,stage=2", "--json"))
    time, lines = found["time"], found["collectives"]
    hops = [line for line in lines if (line["kind"], line["axis"]) == ("permute", "stage")]
    assert sum(line["count"] for line in hops) == 2 * 5
    in_four_ticks = time["compute"] + time["exposed_communication"]  # and what is outside ticks
    assert 0 < time["bubble"] < in_four_ticks / 4 * 1.001
    assert sum(time[name] for name in FIVE) == pytest.approx(found["step_time"])


# --- many runs ----------------------------------------------------------------------------------


def test_every_line_of_a_file_of_runs_has_one_line_in_order(cli, folder):
    odd = SMALL | {"name": "odd\u2028name"}
    texts = [
        json.dumps(SMALL),
        "",
        "nonsense",
        json.dumps(SMALL | {"name": "stages", "mesh": {"stage": 4}}),
        "   ",
        "[]",
        '{"name": 5}',
        json.dumps(odd, ensure_ascii=False),
        '{"name": "a", "name": "b"}',
    ]
    (folder / "many.jsonl").write_text("\n".join(texts), encoding="utf-8")
    code, out, _ = cli("many.jsonl")
    lines = [json.loads(line) for line in out.split("\n")[:-1]]
    assert code == 0 and len(lines) == 7
    assert [line["name"] for line in lines] == ["small", "", "stages", "", "", "odd\u2028name", ""]
    assert ["error" in line for line in lines] == [False, True, True, True, True, False, True]
    assert "many.jsonl, line 3 is not JSON" in lines[1]["error"]
    assert "many.jsonl, line 9: key 'name' is given twice" in lines[6]["error"]
    assert "n_layers=2 is not divisible by stage=4" in lines[2]["error"]


def test_a_mistake_of_ours_costs_one_line(cli, folder, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("oh")

    (folder / "two.jsonl").write_text(f"{json.dumps(SMALL)}\n{json.dumps(SMALL)}\n")
    monkeypatch.setattr("scaling.api.result.priced_result", fail)
    code, out, err = cli("two.jsonl", "--json")
    assert code == 0 and out.count("ZeroDivisionError: oh") == 2
    assert "Traceback" in err


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["absent.jsonl"], ["cannot read absent.jsonl: No such file"]),
        (["small.json", "--cluster", "dgx-h10"], ["'dgx-h10'", "'dgx-h100'"]),
        (["small.json", "--mesh", "stage=4"], ["model.n_layers=2", "stage=4", "stage of 1, 2"]),
        (["small.json", "--cluster", "dgx-h100", "--mesh", "fsdp=16"], ["needs 16", "--nodes 2"]),
        (["small.json", "--source", "analytic", "--dump-hlo", "x.txt"], ["closed form has no HLO"]),
        (["small.json", "--what-if", "nvlink"], ["'nvlink'", "such as 'network x2'"]),
        (["small.json", "--what-if", "nvlink x2"], ["host has no such links"]),
        (["small.py:"], ["no function is named; write small.py:FUNCTION"]),
        (["small.json", "--device-order", "dta"], ["unknown axis 'dta'"]),
        (["small.json", "--calibration", "none.json"], ["cannot read"]),
        (["small.json", "--calibration", "small.json"], ["unknown key 'model'"]),
        (["small.json", "--dump-hlo", "."], ["--dump-hlo . is a folder"]),
        (["two.jsonl", "--trace", "t.json"], ["--trace writes one file", "many runs"]),
        (
            [*"deepseek-v3 --source compiled --cluster dgx-h100 --mesh stage=2".split()],
            ["first_dense_layers 3 on mesh axis stage=2 is not yet trained"],
        ),
    ],
)
def test_one_message_says_what_is_wrong(cli, words, said):
    check_refused(cli(*words), *said, one_line=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trace", "own.json"], ["--trace own.json would write over own.json"]),
        (["--calibration", "cal.json", "--trace", "cal.json"], ["would write over cal.json"]),
        (["--cluster", "box.toml", "--trace", "box.toml"], ["would write over box.toml"]),
    ],
)
def test_no_output_harms_an_input_or_another_output(cli, folder, monkeypatch, words, said):
    monkeypatch.setattr(predict, "target", lambda *_: pytest.fail("worked"))
    (folder / "own.json").write_text(json.dumps(SMALL))
    check_refused(cli("own.json", *words), *said)
    assert json.loads((folder / "own.json").read_text()) == SMALL


def test_chips_without_device_less_compile_are_refused(cli, folder):
    place = files("scaling.meshes.catalog")
    cluster = (place / "clusters/dgx-a100.toml").read_text()
    chip = (place / "accelerators/a100-sxm-80g.toml").read_text()
    (folder / "box.toml").write_text(cluster.replace('"a100-sxm-80g"', '"chip.toml"', 1))
    (folder / "chip.toml").write_text(chip.replace('vendor = "NVIDIA"', 'vendor = "AMD"'))
    said = ["cannot be compiled for without the device", "compute capability 7.0 or newer"]
    check_refused(cli("small.json", "--cluster", "box.toml", "--source", "compiled"), *said)
    code, out, _ = cli("small.json", "--cluster", "box.toml")
    assert code == 0 and "analytic program" in out.splitlines()[0]


# --- whole processes ----------------------------------------------------------------------------


def python(folder, code, *arguments):
    environment = {**os.environ, "SCALING_CACHE": str(folder / "cache")}
    for name in ("JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES"):
        environment.pop(name, None)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


CLI = "import sys; from scaling.cli.main import main; code = main(sys.argv[1:]); "


def test_a_program_that_was_compiled_before_is_priced_without_jax(cli, folder):
    assert cli("small.json", "--json")[0] == 0
    code = CLI + "assert code == 0 and 'jax' not in sys.modules, code"
    result = python(folder, code, "predict", "small.json", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["name"] == "small"


@pytest.mark.deviceless
def test_a_step_is_predicted_for_gpus_that_are_not_here(folder):
    """A two-layer Llama of 8B's shape: the weights' gathers are those of a table by hand."""
    llama = {
        "name": "short", "model": {
            "vocab_size": 32000, "d_model": 4096, "n_layers": 2, "n_heads": 32, "n_kv_heads": 8,
            "d_ff": 14336, "mlp": "swiglu", "norm": "rmsnorm", "positions": "rope",
        },
        "batch": {"global_batch": 16, "seq_len": 4096}, "remat": "full",
        "cluster": {"name": "dgx-h100"},
    }  # fmt: skip
    (folder / "short.json").write_text(json.dumps(llama))
    words = "predict short.json --mesh fsdp=8 --explain --trace t.json --json"
    result = python(folder, CLI + "sys.exit(code)", *words.split())
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    gathered = sum(
        c["bytes"] * c["count"] for c in found["collectives"] if c["kind"] == "all-gather"
    )
    matrices = 2 * (4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336)
    assert gathered == pytest.approx(2 * (2 * matrices + 2 * 32000 * 4096), rel=0.3)
    assert 0.3 < found["mfu"] < found["hfu"] < 0.85
    assert found["memory"]["fits"] is True
    assert {c["level"] for c in found["collectives"]} == {"node"}
    assert found["grade"] in ("calibrated", "datasheet", "extrapolated")
    assert "kernels with an estimate of XLA's own" in result.stderr
    assert "collectives with an estimate of XLA's own" in result.stderr
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    assert any(event["name"].startswith("all-gather[fsdp] layers/mlp ") for event in events)


def test_batch_and_seq_len_are_short_for_settings(capsys):
    where = ("gpt2-124m", "--cluster", "dgx-h100", "--source", "analytic")
    documents = []
    for words in (
        ("--batch", "64", "--seq-len", "1Ki"),
        ("--set", "batch.global_batch=64", "--set", "batch.seq_len=1024"),
    ):
        _, out, _ = run(capsys, "predict", *where, *words, "--json")
        documents.append(json.loads(out))
    assert documents[0] == documents[1] and documents[0]["batch"]["seq_len"] == 1024
    twice = ("--batch", "64", "--set", "batch.global_batch=32")
    check_refused(run(capsys, "plan", *where[:3], *twice), "--batch 64 is short for --set batch.gl")
    with pytest.raises(sc.InputError, match=r"seq_len=8 is short for set=\{'batch.seq_len': 8\}"):
        sc.predict("tiny", "dgx-h100", seq_len=8, set={"batch": {"global_batch": 8, "seq_len": 8}})
    plans = sc.plan("gpt2-124m", "dgx-h100", batch=64, top=1)
    assert plans.best.run.batch.global_batch == 64 and "'batch.global_batch': 64" in plans.next
