"""Predicted joined with measured: errors by their definition, null where nothing was measured."""

import json
from dataclasses import replace

import pytest

from scaling.comparing.compare import Pair, compare
from scaling.comparing.documents import MeasuredFile, PredictedFile, read_document
from scaling.comparing.steps import Measured, Recording
from scaling.meshes.errors import InputError
from scaling.program.ir import Collective, Wait
from scaling.simulate.prediction import TERMS, prediction_dict
from scaling.simulate.summary import summarize
from tests.scaling.comparing.run_folder import MEASURED

TIMES = {
    "compute": 1e-3, "optimizer": 4e-4, "exposed_communication": 1e-4, "bubble": 0.0, "host": 0.0,
    "hidden_communication": 2e-4,
}  # fmt: skip
RECORDING = Recording(
    {
        "dot.1": Measured(3, 5e-4),
        "gather.1": Measured(3, 6e-4),
        "adam.1": Measured(1, 4e-4),
    },
    TIMES,
    devices=8,
)


@pytest.fixture
def prediction(hand_priced):
    """As `write_prediction` writes it."""
    return prediction_dict(summarize(hand_priced)) | {
        "cluster": {"name": "dgx-h100", "nodes": 1, "gpus_per_node": 8},
        "mesh": {"fsdp": 4, "tensor": 2},
        "batch": {"global_batch": 8, "seq_len": 16},
    }


def held(prediction, measured=MEASURED, *rest):
    """`compare` on what the two files hold."""
    predicted = read_document(PredictedFile, prediction, "predicted.json")
    return compare(predicted, read_document(MeasuredFile, measured, "measured.json"), *rest)


def test_the_error_is_predicted_over_measured_less_one():
    assert Pair(3.0, 2.0).error == 0.5
    assert Pair(1.0, 2.0).error == -0.5
    assert Pair(None, 2.0).error is Pair(1.0, None).error is Pair(1.0, 0.0).error is None


def test_on_devices_that_share_cores_only_sums_and_bytes_have_an_error(prediction, hand_priced):
    """The others are kept as measured, without an error and with the reason."""
    host = prediction | {"cluster": prediction["cluster"] | {"name": "host"}}
    found = held(host, MEASURED, hand_priced.program, hand_priced.timeline.by_name, RECORDING)
    document = found.to_dict()
    (reason,) = document["warnings"]
    assert "share the cores of one machine" in reason and found.shares_cores
    assert {term["error"] for term in document["time"].values()} == {None}
    assert document["time"]["compute"]["measured"] == 1e-3
    assert {c["error"] for c in document["collectives"]} == {None}
    assert document["sums"]["kernels"]["error"] is None
    assert document["sums"]["kernels and collectives"]["error"] is not None
    assert document["collectives"][0]["step_bytes"]["error"] == 0.0
    assert document["step_time"]["error"] is not None


def test_sums_are_over_all_devices(prediction, hand_priced):
    found = held(prediction, MEASURED, hand_priced.program, hand_priced.timeline.by_name, RECORDING)
    assert found.sums["kernels"].measured == pytest.approx(8 * 9e-4)
    assert found.sums["kernels and collectives"].measured == pytest.approx(8 * 1.5e-3)
    seconds = 8 * sum(hand_priced.timeline.by_name.values())
    assert found.sums["kernels and collectives"].predicted == pytest.approx(seconds)
    assert found.sums["kernels"].error is not None


def test_the_document_has_the_keys_of_the_contract(prediction, hand_priced):
    found = held(prediction, MEASURED, hand_priced.program, hand_priced.timeline.by_name, RECORDING)
    document = found.to_dict()
    assert {
        "name",
        "machine",
        "versions",
        "step_time",
        "time",
        "collectives",
        "memory",
        "grade",
    } <= set(document)
    assert set(document["step_time"]) == {"predicted", "measured", "error", "spread", "steps"}
    assert set(document["time"]) == set(TERMS)
    pair = {"predicted", "measured", "error"}
    assert all(set(term) == pair for term in document["time"].values())
    keys = {"kind", "axis", "bytes", "step_bytes", "instructions"} | pair
    assert all(set(c) == keys for c in document["collectives"])
    assert pair <= set(document["memory"])
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_without_a_recording_terms_and_collectives_are_not_measured(prediction, hand_priced):
    found = held(prediction, MEASURED, hand_priced.program, hand_priced.timeline.by_name)
    assert all(pair.measured is None and pair.error is None for pair in found.time.values())
    assert [c.seconds.measured for c in found.collectives] == [None, None]
    assert found.kernels == ()


def test_instructions_are_joined_by_name(prediction, hand_priced):
    found = held(prediction, MEASURED, hand_priced.program, hand_priced.timeline.by_name, RECORDING)
    gather, total = found.collectives
    assert (gather.kind, gather.axis, gather.bytes) == ("all-gather", "fsdp", 2**26)
    assert gather.seconds == Pair(hand_priced.timeline.by_name["gather.1"], 6e-4)
    assert total.seconds.measured is None  # not in the recording
    assert found.time["compute"].measured == 1e-3


def test_identical_collectives_are_one(prediction, hand_priced):
    twin = replace(hand_priced.program.schedule[1], name="sum.2")
    program = replace(hand_priced.program, schedule=(*hand_priced.program.schedule, twin))
    seconds = {"sum.1": 1.0, "sum.2": 2.0, "gather.1": 9.0}
    seen = {name: Measured(1, 10.0) for name in ("sum.1", "sum.2")}
    found = held(prediction, MEASURED, program, seconds, Recording(seen, TIMES))
    assert [c.seconds for c in found.collectives] == [Pair(9.0, None), Pair(3.0, 20.0)]


def test_groups_of_one_are_no_communication(prediction, hand_priced):
    alone = Collective("alone", kind="all-reduce", bytes=8)
    program = replace(hand_priced.program, schedule=(alone, Wait("alone")))
    assert held(prediction, MEASURED, program, {}).collectives == ()


def test_kernels_that_differ_most_come_first(prediction, hand_priced):
    found = held(
        prediction, MEASURED, hand_priced.program, {"dot.1": 6e-4, "adam.1": 9e-4}, RECORDING
    )
    assert [kernel.name for kernel in found.kernels] == ["adam.1", "dot.1"]
    assert (
        found.kernels[0].origin == "optimizer" and found.kernels[1].origin == "forward layers/mlp"
    )


def test_memory_that_was_not_measured_is_null_beside_the_compilers_plan(prediction):
    on_cpu = MEASURED | {"memory": {"measured": None, "compiled": 12e9}}
    memory = held(prediction, on_cpu).to_dict()["memory"]
    assert memory == {"predicted": 12e9, "measured": None, "error": None, "compiled": 12e9}
    assert held(prediction, MEASURED).memory == Pair(12e9, 11e9)


PREDICTED_KEYS = ["name", "step_time", "time", "memory", "grade", "cluster", "mesh", "batch"]
MEASURED_KEYS = ["step_time", "memory", "machine", "versions", "recorded_steps"]


@pytest.mark.parametrize(
    ("position", "key"),
    [*((0, key) for key in PREDICTED_KEYS), *((1, key) for key in MEASURED_KEYS)],
)
def test_a_file_of_another_version_is_refused(prediction, position, key):
    documents = [dict(prediction), dict(MEASURED)]
    del documents[position][key]
    with pytest.raises(InputError, match=f"'{key}'.*train the run again"):
        held(*documents)
