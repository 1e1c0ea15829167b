"""`scaling compare` on run folders: whole ones, and those that lack something."""

import json
from functools import partial

import pytest

from scaling.comparing import compare
from scaling.comparing.recorded import RecordedEvent
from scaling.meshes import catalog
from tests.scaling.cli.running import check_refused, run
from tests.scaling.comparing.run_folder import MEASURED, write_folder

H100 = catalog.load("dgx-h100")


@pytest.fixture
def folder(tmp_path, hand_priced, toy):
    """The folder of a finished run, as the trainer leaves it."""
    run = toy(mesh={"fsdp": 4, "tensor": 2})
    return write_folder(tmp_path / "run", run, hand_priced, recorded_steps=[6, 6])


@pytest.fixture
def recording(folder, hand_priced, monkeypatch):
    """A recording of step 6 in which everything takes a tenth longer than predicted."""
    found = [
        RecordedEvent(
            0, e.stream, e.operation.name, "jit_step", 1.1 * e.start, 1.1 * (e.end - e.start), 1
        )
        for e in hand_priced.timeline.events
    ]
    (folder / "profile").mkdir()
    monkeypatch.setattr(compare, "recorded_events", lambda place: found)
    return found


@pytest.fixture
def cli(capsys):
    return partial(run, capsys, "compare")


def test_without_a_recording_step_time_and_memory_are_compared(cli, folder):
    code, out, _ = cli(folder)
    assert code == 0
    assert "2 ms measured, error " in out and "spread 2.0% over 9 steps" in out
    assert "11 GB measured, error +9.1%" in out
    assert f"page: {folder / 'comparison.html'}" in out
    assert "next: train with --record-profile" in out
    assert all((folder / f"comparison.{end}").is_file() for end in ("html", "svg", "png"))


def test_json_is_one_document(cli, folder):
    code, out, _ = cli(folder, "--json")
    assert code == 0 and out.count("\n") == 1
    found = json.loads(out)
    step = found["step_time"]
    assert step["error"] == pytest.approx(step["predicted"] / step["measured"] - 1)
    assert found["time"]["compute"]["measured"] is None


def test_with_a_recording_terms_and_collectives_are_compared(cli, folder, recording):
    found = json.loads(cli(folder, "--json")[1])
    for term in ("compute", "optimizer", "exposed_communication"):
        assert found["time"][term]["error"] == pytest.approx(1 / 1.1 - 1)
    assert [c["error"] for c in found["collectives"]] == pytest.approx([1 / 1.1 - 1] * 2)
    assert {k["name"] for k in found["kernels"]} == {"dot.1", "norm.1", "adam.1"}
    assert "next: train with" not in cli(folder)[1]


def test_the_trace_has_both_as_processes(cli, folder, recording, tmp_path):
    code, _, err = cli(folder, "--trace", tmp_path / "both.json", "--json")
    assert code == 0 and "trace: " in err
    events = json.loads((tmp_path / "both.json").read_text())["traceEvents"]
    spans = {p: [e for e in events if e["pid"] == p and e["ph"] == "X"] for p in (1, 2)}
    assert sorted(e["name"] for e in spans[1]) == sorted(e["name"] for e in spans[2])


def test_a_profile_of_another_run_is_refused(cli, folder, recording):
    recording[:] = [RecordedEvent(0, "1", f"other.{i}", "jit_x", i, 1.0, 1) for i in range(9)]
    check_refused(cli(folder), "the profile is of another program")


def test_an_empty_profile_folder_is_refused(cli, folder):
    (folder / "profile").mkdir()
    check_refused(cli(folder), "no profile in")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("measured.json", ["has no measured.json", "scaling train"]),
        ("predicted.json", ["has no predicted.json", "scaling calibrate --quick"]),
        ("run.json", ["is no run folder"]),
    ],
)
def test_a_folder_that_lacks_something_is_refused(cli, folder, name, words):
    (folder / name).unlink()
    check_refused(cli(folder), *words)


@pytest.mark.parametrize("name", ["program.json", "calibration.json"])
def test_without_program_or_calibration_the_step_time_is_left(cli, folder, name, recording):
    (folder / name).unlink()
    _, out, err = cli(folder, "--json")
    found = json.loads(out)
    assert found["step_time"]["error"] is not None and found["collectives"] == []
    assert err.startswith("warning: terms and collectives are left out: ")
    assert f"has no {name}; train the run again" in err
    assert "next: train with --record-profile" not in cli(folder)[1]
    check_refused(cli(folder, "--trace", "t.json"), f"--trace: {folder} has no {name}; train")


def test_both_missing_files_are_named(cli, folder, recording):
    (folder / "program.json").unlink()
    (folder / "calibration.json").unlink()
    assert "has no program.json and calibration.json" in cli(folder)[2]


def test_a_profile_that_measured_json_does_not_know_is_asked_for_again(cli, folder, recording):
    """Of steps before the last time that the run was resumed."""
    (folder / "measured.json").write_text(json.dumps(MEASURED))
    assert "next: train with --record-profile" in cli(folder)[1]


def test_a_prediction_of_another_version_is_refused(cli, folder):
    old = json.loads((folder / "predicted.json").read_text())
    del old["cluster"]
    (folder / "predicted.json").write_text(json.dumps(old))
    check_refused(cli(folder), "train the run again")


@pytest.mark.parametrize("name", ["host", "dgx-a100", "dgx-h10"])
def test_a_prediction_for_another_machine_is_refused(cli, folder, name):
    document = json.loads((folder / "predicted.json").read_text())
    document["cluster"]["name"] = name
    (folder / "predicted.json").write_text(json.dumps(document))
    check_refused(cli(folder), "predicted.json: cluster: ", name)


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        ("nowhere/t.json", "--trace nowhere/t.json: there is no folder nowhere"),
        ("{folder}/measured.json", "would write over"),
        ("{folder}/comparison.html", "would write over"),
        ("{folder}/checkpoints", "would write over"),
        ("{folder}", "is a folder"),
    ],
)
def test_a_trace_that_cannot_be_written_is_refused_before_the_work(cli, folder, trace, words):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    check_refused(cli(folder, "--trace", trace.format(folder=folder)), words)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
