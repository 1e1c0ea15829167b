"""run.json: its defaults are the contract's, what is written is what is read, and nothing that
JSON can hold does worse than one message in the user's words."""

import functools
import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.meshes.shape import AXES
from scaling.run import Run, load_run, read_run, run_dict, save_run

BATCH = {"global_batch": 8, "seq_len": 32}
SHAPE = {"vocab_size": 100, "d_model": 64, "n_layers": 2, "n_heads": 4, "d_ff": 128}
MINIMAL = {"name": "minimal", "model": SHAPE, "batch": BATCH}
MOE = {"n_experts": 8, "experts_per_token": 2}
MLA = {
    "q_lora_rank": 16,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}

ROPE_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_positions": 64,
}

# The default of every key as the contract of run.json states it. Keys may be added, not changed.
CONTRACT = {
    "model": {
        "n_kv_heads": SHAPE["n_heads"],
        "head_dim": SHAPE["d_model"] // SHAPE["n_heads"],
        "tied_embeddings": False,
        "bias": False,
        "qk_norm": False,
        "sliding_window": None,
        "mla": None,
        "moe": {
            "d_ff_expert": None,  # the model's d_ff
            "n_shared_experts": 0,
            "first_dense_layers": 0,
            "capacity_factor": None,
            "device_capacity_factor": None,
            "skew": 1.0,
            "gate": "softmax",
            "normalize_weights": True,
            "routed_scaling": 1.0,
            "selection_bias": False,
            "bias_update_rate": 0.0,
            "n_groups": 1,
            "groups_per_token": 1,
            "aux_loss": 0.0,
            "z_loss": 0.0,
        },
    },
    "batch": {"microbatches": 1},
    "mesh": dict.fromkeys(AXES, 1),
    "device_order": ["stage", "data", "fsdp", "expert", "context", "tensor"],
    "sharding": {"zero_stage": None, "sequence_parallel": None},  # None: see tests of layouts
    "pipeline": {"schedule": "1f1b", "virtual_stages": 1},
    "context": {"method": "ring"},
    "precision": {
        "compute": "bf16",
        "parameters": "fp32",
        "gradients": "fp32",
        "reduce": None,
        "optimizer_state": "fp32",
        "stochastic_rounding": False,
    },
    "optimizer": "adamw",
    "remat": "none",
    "attention": "flash",
    "dropout": 0.0,
    "software": "jax",
}

# Published runs, written down from their sources; the figures are facts of these pages.
MPT = {"mlp": "gelu", "norm": "layernorm", "bias": True, "tied_embeddings": True}
PUBLISHED = {
    # mosaicml/llm-foundry, scripts/train/benchmarking/README.md, "H100 80GB BF16 (Large Scale)"
    "mpt-70b, 256 H100": {
        "name": "mpt-70b, 256 H100",
        "model": MPT
        | {"vocab_size": 50368, "d_model": 8192, "n_layers": 80, "n_heads": 64, "d_ff": 32768}
        | {"positions": "learned", "sliding_window": None, "moe": None},
        "batch": {"global_batch": 2048, "seq_len": 2048, "microbatches": 1},
        "mesh": {"fsdp": 256},
        "remat": "full",
        "cluster": {"name": "dgx-h100", "nodes": 32},
        "software": "pytorch-fsdp",
    },
    # bigscience-workshop/bigscience, train/tr11-176B-ml/chronicles-prequel.md, "48 node contenders"
    "176b, 384 A100": {
        "name": "176b, 384 A100",
        "model": MPT
        | {"vocab_size": 250_000, "d_model": 14336, "n_layers": 72, "n_heads": 64, "d_ff": 57344}
        | {"positions": "alibi", "head_dim": 224},
        "batch": {"global_batch": 2048, "seq_len": 2048, "microbatches": 512},
        "mesh": {"fsdp": 4, "stage": 12, "tensor": 8},
        "sharding": {"zero_stage": 1, "sequence_parallel": False},
        "precision": {"compute": "fp16", "parameters": "bf16", "gradients": "bf16"},
        "remat": "full",
        "attention": "unfused",
        "cluster": {
            "name": "dgx-a100",
            "nodes": 48,
            "overrides": {"node_network_bandwidth": 50e9},
        },
        "software": "deepspeed",
    },
}


def changed(path, value, base=MINIMAL):
    """`base` with the value at `path` (keys joined by /) replaced; tables are made on the way."""
    first, _, rest = path.partition("/")
    inner = base.get(first) if isinstance(base.get(first), dict) else {}
    return {**base, first: changed(rest, value, inner) if rest else value}


def leaves(data, prefix=""):
    """Every (path, value) of a nested dictionary, tables included."""
    for key, value in data.items():
        yield prefix + key, value
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}/")


def at(data, path):
    """The value at a path."""
    return functools.reduce(dict.__getitem__, path.split("/"), data)


def covers(full, part):
    """Whether every key of `part` has the same value in `full`."""
    return all(
        covers(full[k], v) if isinstance(v, dict) and isinstance(full[k], dict) else full[k] == v
        for k, v in part.items()
    )


def message(data):
    """What reading `data` is refused with."""
    with pytest.raises(InputError) as raised:
        read_run(data)
    return str(raised.value)


# --- defaults -----------------------------------------------------------------------------------


def test_every_default_is_the_contract_s():
    run = read_run({**MINIMAL, "model": {**SHAPE, "moe": MOE}, "mesh": {}})
    actual = run_dict(run)
    paths = [path for path, value in leaves(CONTRACT) if not isinstance(value, dict)]
    assert {p: at(actual, p) for p in paths} == {p: at(CONTRACT, p) for p in paths}


def test_without_a_mesh_none_is_assumed():
    assert read_run(MINIMAL).mesh is None
    assert read_run({**MINIMAL, "mesh": None}).mesh is None
    assert "mesh" not in run_dict(read_run(MINIMAL))


@pytest.mark.parametrize("software", ["jax", "megatron"])
def test_pipeline_stages_are_outermost_for_all_software(software):
    run = read_run({**MINIMAL, "mesh": {"stage": 2, "tensor": 4}, "software": software})
    assert run.mesh.device_order == AXES and AXES[0] == "stage"


@pytest.mark.parametrize("order", [5, "data", ["data"], ["data"] * 6, ["date", *AXES[1:]]])
@pytest.mark.parametrize("mesh", [{"mesh": {"fsdp": 2}}, {}])
def test_a_device_order_that_is_none_is_refused_with_and_without_a_mesh(order, mesh):
    assert "device_order" in message({**MINIMAL, **mesh, "device_order": order})


def test_learned_positions_without_a_table_take_the_sequence():
    run = read_run({**MINIMAL, "model": {**SHAPE, "positions": "learned"}})
    assert run.model.max_positions == BATCH["seq_len"]


def test_a_sequence_beyond_the_learned_positions_says_both_numbers():
    document = changed("batch/seq_len", 2048, {**MINIMAL, "model": {"preset": "gpt2-124m"}})
    assert "seq_len=2048" in message(document) and "1024" in message(document)
    assert read_run(changed("batch/seq_len", 1024, document)).batch.seq_len == 1024


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "nearest"),
    [
        ("model/preset", "lama3-8b", "llama3-8b"),
        ("model/mlp", "swiglue", "swiglu"),
        ("remat", "selectiv", "selective"),
    ],
)
def test_an_unknown_choice_names_the_nearest(path, value, nearest):
    said = message(changed(path, value))
    assert repr(value) in said and f"did you mean {nearest!r}" in said


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("batch", None, "table"),
        ("batch/global_batch", "8", "int"),
        ("batch/global_batch", 8.5, "int"),
        ("batch/seq_len", None, "int"),
        ("model", None, "table"),
        ("model/preset", 3, "string"),
        ("model/bias", 1, "bool"),
        ("mesh", "data=2", "table"),
        ("mesh/data", "2", "int"),
        ("mesh/data", 0, "positive"),
        ("train/learning_rate", math.nan, "float"),
        ("train/learning_rate", math.inf, "float"),
        ("name", None, "str"),
        ("cluster/overrides", [1], "table"),
        ("cluster/overrides/memory", "40 parsecs", "cluster: overrides: memory=40 parsecs"),
    ],
)
def test_a_value_of_the_wrong_type_says_where_and_what_was_expected(path, value, expected):
    said = message(changed(path, value))
    assert path.split("/")[-1] in said and expected in said


def test_overrides_may_be_texts_with_a_unit_as_the_option_takes_them():
    texts = {"name": "dgx-h100", "overrides": {"node_network_bandwidth": "400Gb/s", "memory": 4e10}}
    run = read_run(changed("cluster", texts))
    assert run.cluster.overrides == {"node_network_bandwidth": 50e9, "memory": 40e9}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("sharding/zero_stage", 4),
        ("pipeline/virtual_stages", 0),
        ("batch/global_batch", 0),
        ("dropout", 1.5),
        ("model/vocab_size", 2**31),  # beyond the ids that int32 holds
        ("cluster/nodes", 0),
    ],
)
def test_a_number_out_of_its_range_is_refused(path, value):
    assert path.split("/")[-1] in message(changed(path, value))


def test_missing_sizes_are_all_named():
    assert "missing 'model'" in message({"batch": BATCH})
    said = message({**MINIMAL, "model": {"n_layers": 2}})
    assert all(name in said for name in ("vocab_size", "d_model", "n_heads", "d_ff"))


@pytest.mark.parametrize("data", [None, "tiny", [MINIMAL]])
def test_a_document_that_is_no_table_is_refused(data):
    assert "expected a table" in message(data)


# --- files --------------------------------------------------------------------------------------


def test_a_saved_run_is_read_back(tmp_path):
    run = read_run(PUBLISHED["176b, 384 A100"])
    save_run(run, tmp_path / "run.json")
    assert load_run(tmp_path / "run.json") == run


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"\x00", b"null", b'{"name": NaN}'],
    ids=["empty", "half written", "binary", "deep", "nul", "null", "nan"],
)
def test_a_file_that_holds_no_run_is_refused_by_its_name(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match="run.json"):
        load_run(path)


# --- published runs -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_run_is_read_as_it_was_written(name):
    document = PUBLISHED[name]
    run = read_run(document)
    given = {k: v for k, v in document.items() if k != "model"}
    assert covers(run_dict(run), given)
    check_round_trip(run)
    assert run.mesh.devices == int(name.split()[-2])
    assert run.batch.global_batch % (run.mesh.batch_shards * run.batch.microbatches) == 0


# --- any input ----------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(), st.floats(), st.just(10**400), st.just(-(10**400)), st.sampled_from([0, -1])
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
FULL = run_dict(
    read_run(
        {
            **MINIMAL,
            "model": {**SHAPE, "moe": MOE, "mla": MLA, "rope_scaling": ROPE_SCALING},
            "mesh": {"fsdp": 2},
            "train": {"schedule": "wsd", "decay_steps": 3},
            "cluster": {"name": "dgx-h100", "overrides": {"memory": 40e9}},
        }
    )
)


def check_round_trip(run: Run) -> None:
    """The run survives being written down, as plain data and as text."""
    written = run_dict(run)
    assert read_run(written) == run
    assert read_run(json.loads(json.dumps(written, allow_nan=False))) == run


@pytest.mark.parametrize("value", [2**31, 10**24])
@pytest.mark.parametrize("path", ["batch/global_batch", "batch/seq_len"])
def test_a_batch_beyond_the_rows_that_jax_numbers_is_refused(path, value):
    said = message(changed(path, value))
    assert path.split("/")[-1] in said and ("2147483647" in said or "80 bits" in said)


@given(JSON)
def test_no_document_raises_anything_but_bad_input(data):
    with pytest.raises(InputError):
        read_run(data)


@given(st.sampled_from([path for path, _ in leaves(FULL)]), JSON)
@example("train/learning_rate", 10**400)
@example("batch/seq_len", 10**400)
def test_any_value_anywhere_gives_a_run_or_says_bad_input(path, value):
    try:
        run = read_run(changed(path, value, FULL))
    except InputError as error:
        assert str(error)
    else:
        check_round_trip(run)
