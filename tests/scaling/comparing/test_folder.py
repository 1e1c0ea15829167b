"""What a comparison reads from a run folder, and what it says where something is missing."""

import json
from dataclasses import asdict, replace

import pytest

from scaling.api.compare import read_run_folder
from scaling.comparing.compare import compare_run
from scaling.comparing.documents import MeasuredFile, MemoryFile, PricedCluster, StepTimeFile
from scaling.comparing.folder import read_folder, remove_prediction
from scaling.meshes.errors import InputError
from scaling.models.config import Moe
from scaling.simulate.prediction import prediction_dict
from scaling.simulate.summary import summarize
from tests.scaling.comparing.run_folder import write_folder


@pytest.fixture
def folder(tmp_path, hand_priced, toy):
    memory = {"measured": None, "compiled": 12_000_000_000}
    run = toy(mesh={"fsdp": 4, "tensor": 2})
    return write_folder(tmp_path, run, hand_priced, memory=memory, recorded_steps=[6, 9])


def test_everything_comes_back(folder, hand_priced, toy):
    found = read_folder(folder)
    assert found.run == toy(mesh={"fsdp": 4, "tensor": 2})
    assert found.program == hand_priced.program
    assert found.profile == hand_priced.profile
    assert found.recording is None
    assert found.measured == MeasuredFile(
        "hand",
        "8 x NVIDIA H100 80GB HBM3, x86_64",
        {"jax": "0.10.2"},
        StepTimeFile(2e-3, 0.02, 9),
        MemoryFile(None, 12_000_000_000),
        (6, 9),
    )
    prediction = summarize(hand_priced)
    assert found.prediction.step_time == prediction.step_time
    assert found.prediction.time == asdict(prediction.time)
    assert found.prediction.memory.peak == prediction.memory.peak
    assert found.prediction.cluster == PricedCluster("dgx-h100", 1, 8)


def test_the_written_prediction_is_the_printed_one_with_cluster_mesh_and_batch(folder, hand_priced):
    written = json.loads((folder / "predicted.json").read_text())
    printed = prediction_dict(summarize(hand_priced))
    assert {k: written[k] for k in printed} == json.loads(json.dumps(printed))
    assert set(written) - set(printed) == {"cluster", "mesh", "batch", "model"}


def change(file, key, value):
    """Puts `value` in the place `a.b` of a JSON file; None of the places is new but the last."""
    document = json.loads(file.read_text())
    *tables, last = key.split(".")
    table = document
    for name in tables:
        table = table[name]
    table[last] = value
    file.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("run.json", "mesh.tensor", 1),
        ("run.json", "mesh.data", 2),
        ("run.json", "device_order", ["tensor", "data", "fsdp", "stage", "expert", "context"]),
        ("run.json", "batch.global_batch", 16),
        ("run.json", "batch.microbatches", 2),
        ("predicted.json", "mesh.fsdp", 8),
        ("predicted.json", "batch.seq_len", 32),
        ("program.json", "mesh.tensor", 4),
        ("program.json", "mesh.unknown", 2),
    ],
)
def test_a_prediction_of_another_mesh_or_batch_is_refused(folder, name, key, value):
    change(folder / name, key, value)
    with pytest.raises(InputError, match="is of another run: its (mesh|batch) is .*run.json has"):
        read_folder(folder)


def test_a_prediction_is_removed_whole(folder):
    remove_prediction(folder)
    remove_prediction(folder)  # where there is none
    assert sorted(path.name for path in folder.iterdir()) == ["measured.json", "run.json"]


NONSENSE = ("fast", float("nan"), float("inf"), -1.0, [1.0], {})


@pytest.mark.parametrize(
    ("name", "key", "values"),
    [
        ("measured.json", "recorded_steps", ([1], "6:9", [9, 6], [0, 3], [1.5, 2], 6, {})),
        ("measured.json", "step_time", ("fast", None, [])),
        ("measured.json", "step_time.measured", (*NONSENSE, None, 0)),
        ("measured.json", "step_time.spread", NONSENSE),
        ("measured.json", "step_time.steps", (*NONSENSE, None, 1.5)),
        ("measured.json", "versions", ("x", None, [], {"jax": 1})),
        ("measured.json", "machine", (None, 8)),
        ("measured.json", "memory.compiled", NONSENSE),
        ("measured.json", "memory.measured", NONSENSE),
        ("predicted.json", "name", (None, 1)),
        ("predicted.json", "step_time", (*NONSENSE, None)),
        ("predicted.json", "time.compute", (*NONSENSE, None)),
        ("predicted.json", "memory.peak", (*NONSENSE, None)),
        ("predicted.json", "grade", ("best", None)),
        ("predicted.json", "cluster", ("dgx-h100", None, [])),
        ("predicted.json", "cluster.name", (None, 1)),
        ("predicted.json", "cluster.nodes", (*NONSENSE, None, 0)),
        ("predicted.json", "cluster.gpus_per_node", (*NONSENSE, None, 0)),
        ("predicted.json", "mesh", ("x", None, {"fsdp": "four"})),
        ("predicted.json", "batch", (None, {"global_batch": 0, "seq_len": 1})),
        ("program.json", "extra", (1,)),
        ("program.json", "schedule", ("x", [{"step": "kernel", "name": "k", "flops": "many"}])),
        ("program.json", "schedule", ([{"step": "kernel", "name": "k", "flopps": 1}],)),
        ("program.json", "buffers", ("x", [[1]], None)),
    ],
)
def test_a_damaged_value_is_refused_with_its_file(folder, name, key, values):
    whole = (folder / name).read_text()
    for value in values:
        (folder / name).write_text(whole)
        change(folder / name, key, value)
        with pytest.raises(InputError, match=rf"{name}.* again$") as caught:
            read_folder(folder)
        assert name == "program.json" or key.split(".")[-1] in str(caught.value)


@pytest.mark.parametrize("name", ["measured.json", "predicted.json", "program.json", "run.json"])
def test_a_file_nested_too_deeply_is_refused(folder, name):
    (folder / name).write_text("[" * 100_000)
    with pytest.raises(InputError, match=f"{name} is not JSON"):
        read_folder(folder)


def test_program_and_calibration_may_be_missing(folder):
    (folder / "program.json").unlink()
    (folder / "calibration.json").unlink()
    found = read_folder(folder)
    assert found.program is found.profile is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("run.json", "is no run folder: it has no run.json"),
        ("measured.json", "has no measured.json: no finished step is on record"),
        ("predicted.json", "has no predicted.json: .* run `scaling calibrate --quick` once"),
    ],
)
def test_what_is_missing_is_said_with_the_fix(folder, name, words):
    (folder / name).unlink()
    with pytest.raises(InputError, match=words):
        read_folder(folder)


@pytest.mark.parametrize("name", ["measured.json", "predicted.json"])
def test_a_file_of_something_else_is_refused(folder, name):
    (folder / name).write_text(json.dumps([1, 2]))
    with pytest.raises(InputError, match=f"{name}: expected a table of keys"):
        read_folder(folder)


def test_the_measured_load_of_experts_is_named_and_priced(tmp_path, hand_priced, toy):
    run = toy(mesh={"fsdp": 4, "expert": 2})
    run = replace(run, model=replace(run.model, moe=Moe(8, 2, 64)))
    program = replace(hand_priced.program, mesh=run.mesh.sizes)
    folder = write_folder(tmp_path, run, replace(hand_priced, program=program))
    lines = [{"step": n, "device_skew": skew} for n, skew in enumerate((1.9, 1.5, 1.2), 1)]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    files = read_run_folder(folder)
    (note,) = compare_run(files).warnings
    assert "1.5 times the mean of rows" in note and "more a step" in note
    assert not compare_run(replace(files, skew=1.01)).warnings
    assert not compare_run(replace(files, skew=None)).warnings
