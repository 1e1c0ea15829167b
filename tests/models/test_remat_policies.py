"""Remat policies by name: what they keep, how they are written, and which are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.models.accounting import activation_bytes, train_flops
from scaling.models.accounting.remat import (
    MAXTEXT,
    NAMES,
    POLICIES,
    SavedTensors,
    kept_by,
    parse_remat,
    tensor_names,
)
from scaling.models.presets import preset
from scaling.run import read_run, run_dict
from scaling.run.recipes import recipe

LLAMA = preset("llama3-8b")
SUBSETS = st.lists(st.sampled_from(tensor_names(LLAMA)), unique=True).map(tuple)
DOCUMENT = {"model": {"preset": "llama3-8b"}, "batch": {"global_batch": 8, "seq_len": 128}}


def kept_bytes(remat) -> float:
    return sum(activation_bytes(LLAMA, 1, 128, remat).values())


def flops(remat) -> float:
    return train_flops(LLAMA, 1, 128, remat).total


def test_the_three_policies_keep_what_their_tensors_keep() -> None:
    selective = SavedTensors(("query", "key", "value", "attention", "mlp_up", "mlp_gate"))
    for name, same in (("selective", selective), ("full", SavedTensors())):
        assert activation_bytes(LLAMA, 1, 128, name) == activation_bytes(LLAMA, 1, 128, same)
        assert train_flops(LLAMA, 1, 128, name) == train_flops(LLAMA, 1, 128, same)


@given(SUBSETS, SUBSETS)
def test_keeping_more_takes_more_memory_and_computes_no_more(one, other) -> None:
    both = tuple(dict.fromkeys(one + other))
    assert kept_bytes(SavedTensors(one)) <= kept_bytes(SavedTensors(both)) <= kept_bytes("none")
    assert flops("none") <= flops(SavedTensors(both)) <= flops(SavedTensors(one)) <= flops("full")


@given(SUBSETS, SUBSETS)
def test_a_policy_survives_run_json_and_its_short_form(save, rest) -> None:
    remat = SavedTensors(save, tuple(name for name in rest if name not in save))
    if remat == SavedTensors():
        return
    assert parse_remat(str(remat)) == remat
    run = read_run({**DOCUMENT, "remat": {"save": list(remat.save), "offload": remat.offload}})
    assert run.remat == remat
    assert read_run(json.loads(json.dumps(run_dict(run)))) == run


def test_a_list_saves_and_an_empty_one_is_full() -> None:
    assert read_run({**DOCUMENT, "remat": ["query", "mlp_up"]}).remat == SavedTensors(
        ("query", "mlp_up")
    )
    assert read_run({**DOCUMENT, "remat": "mlp_up@host"}).remat == SavedTensors((), ("mlp_up",))
    assert read_run({**DOCUMENT, "remat": []}).remat == "full"


def test_policies_of_maxtext_name_tensors_of_ours() -> None:
    for name, kept in MAXTEXT.items():
        assert kept.names <= set(NAMES), name
        assert read_run({**DOCUMENT, "remat": name}).remat == name
        assert kept_by(name) == kept
    assert not set(MAXTEXT) & set(POLICIES)


@pytest.mark.parametrize(
    ("remat", "words"),
    [
        ("selectiv", "remat 'selectiv' is not a policy, .*; did you mean 'selective'"),
        ("minimal_offload", "did you mean 'minimal_offloaded'"),
        (["qery"], "'qery' is no tensor of this model; use query, key, value, attention, "),
        (["query", "expert_input"], "'expert_input' is no tensor of this model .a dense model.; "),
        ({"save": ["query"], "offload": ["query"]}, "'query' is named twice; save it, or offload"),
        ({"keep": ["query"]}, "remat: unknown key 'keep'"),
        (3, "remat: expected str, got 3"),
    ],
)
def test_what_is_not_known_is_refused_with_the_names(remat, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_run({**DOCUMENT, "remat": remat})


def test_a_gate_that_the_model_does_not_have_is_refused() -> None:
    document = run_dict(recipe("gpt2-124m"))
    with pytest.raises(InputError, match=r"'mlp_gate'.*mlp 'gelu' has no gate.*mlp_up"):
        read_run({**document, "remat": ["mlp_gate"]})
    assert read_run({**document, "remat": "minimal"}).remat == "minimal"  # keeps what there is


def test_other_software_has_no_named_tensors() -> None:
    with pytest.raises(InputError, match=r"remat 'query' names tensors.*'megatron'.*selective"):
        read_run({**DOCUMENT, "remat": ["query"], "software": "megatron"})
