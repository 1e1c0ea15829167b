"""A prediction as JSON: the keys of the contract, and nothing that JSON cannot say."""

import json
from dataclasses import replace

import numpy as np
import pytest

from scaling.simulate.prediction import prediction_dict
from scaling.simulate.summary import summarize

KEYS = {
    "name", "source", "devices", "step_time", "step_time_low", "step_time_high",
    "tokens_per_second", "tokens_per_second_per_device", "model_flops", "mfu", "hfu", "time",
    "memory", "collectives", "bottleneck", "grade", "warnings",
}  # fmt: skip
TIME = {
    "compute", "optimizer", "exposed_communication", "bubble", "host", "hidden_communication",
}  # fmt: skip
MEMORY = {
    "peak", "parameters", "gradients", "optimizer_state", "activations", "temporary",
    "communication", "pinned_host", "capacity", "fits", "in_use", "needed", "fit_probability",
    "host_needed", "host_capacity",
}  # fmt: skip
COLLECTIVE = {
    "kind", "axis", "bytes", "dtype", "count", "time", "exposed", "algorithm", "level",
    "bottleneck",
}  # fmt: skip


@pytest.fixture
def prediction(hand_priced):
    return summarize(hand_priced)


def test_the_document_has_the_keys_of_the_contract(prediction):
    document = prediction_dict(prediction)
    assert set(document) >= KEYS
    assert set(document["time"]) == TIME
    assert set(document["memory"]) == MEMORY
    assert [set(line) for line in document["collectives"]] == [COLLECTIVE] * 2


def test_the_document_is_json(prediction):
    document = prediction_dict(prediction)
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_what_is_not_finite_is_null(prediction):
    odd = replace(prediction, mfu=float("nan"), step_time_high=float("inf"))
    document = prediction_dict(odd)
    assert document["mfu"] is None and document["step_time_high"] is None


def test_arrays_become_lists_and_numpy_scalars_numbers(prediction):
    many = replace(prediction, step_time=np.array([1.0, np.inf]), devices=np.int64(8))
    document = prediction_dict(many)
    assert document["step_time"] == [1.0, None]
    assert type(document["devices"]) is int
