"""run.json under fire: keys misspelt at every level, bytes torn and turned, also through commands.

Either a run comes out that says what the file says, or one message; never a traceback, and never a
default in place of what somebody tried to set.
"""

import json

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from scaling.cli import main as cli
from scaling.meshes.errors import InputError
from scaling.recipes import resolve
from scaling.run import load_run, read_run, run_dict

EXPERTS = {"n_experts": 8, "experts_per_token": 2, "d_ff_expert": 64}
LATENTS = {"q_lora_rank": 16, "kv_lora_rank": 8, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8}
ROPE = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
FULL = run_dict(
    read_run(
        {
            "name": "full",
            "model": {
                **{"vocab_size": 256, "d_model": 64, "n_layers": 2, "n_heads": 4, "d_ff": 128},
                "moe": EXPERTS,
                "mla": {**LATENTS, "v_head_dim": 16},
                "rope_scaling": {**ROPE, "original_max_positions": 64},
            },
            "batch": {"global_batch": 8, "seq_len": 32},
            "mesh": {"fsdp": 2},
            "train": {"schedule": "wsd", "decay_steps": 3},
            "cluster": {"name": "dgx-h100", "overrides": {"memory": 40e9}},
        }
    )
)
LETTERS = "abcdefghijklmnopqrstuvwxyz_"
FREE = ("cluster", "overrides")  # a table whose keys are those of the cluster, checked with it


def tables(data, path=()):
    """Every table of a document, by its path."""
    yield path, data
    for key, value in data.items():
        if isinstance(value, dict):
            yield from tables(value, (*path, key))


KEYS = [(path, key) for path, table in tables(FULL) for key in table if path != FREE]


@st.composite
def misspelt(draw, word):
    """A word with one letter left out, put in, exchanged, moved, or in capitals."""
    at = draw(st.integers(0, len(word) - 1))
    letter = draw(st.sampled_from(LETTERS))
    rest = word[at + 1 :]
    return draw(
        st.sampled_from(
            [
                word[:at] + rest,
                word[:at] + letter + word[at:],
                word[:at] + letter + rest,
                word[:at] + rest[:1] + word[at] + rest[1:],
                word[:at] + word[at].upper() + rest,
                word + " ",
                word.replace("_", "-"),
            ]
        )
    )


def renamed(data, path, old, new):
    """The document with one key of one table spelt otherwise."""
    if not path:
        return {new if key == old else key: value for key, value in data.items()}
    first, *rest = path
    return {**data, first: renamed(data[first], rest, old, new)}


@given(st.data())
def test_a_misspelt_key_at_any_level_is_never_a_silent_default(data):
    path, key = data.draw(st.sampled_from(KEYS))
    wrong = data.draw(misspelt(key))
    table = dict(tables(FULL))[path]
    assume(wrong not in table)
    with pytest.raises(InputError) as caught:
        read_run(renamed(FULL, path, key, wrong))
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize(("path", "key"), KEYS, ids=lambda part: ".".join(part) or "-")
def test_every_key_spelt_a_little_otherwise_is_refused(path, key):
    with pytest.raises(InputError, match=f"{key}_x"):
        read_run(renamed(FULL, path, key, f"{key}_x"))


TEXT = json.dumps(FULL, indent=1).encode()
EDITS = st.lists(
    st.tuples(
        st.integers(0, len(TEXT)),  # where
        st.integers(0, 6),  # bytes that go
        st.binary(max_size=4) | st.sampled_from([b'"', b"{", b"]", b",", b"null", b"1e999", b"-"]),
    ),
    min_size=1,
    max_size=4,
)


def edited(text, edits):
    for at, gone, new in edits:
        text = text[:at] + new + text[at + gone :]
    return text


@given(EDITS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_torn_or_turned_is_a_run_or_one_message_that_names_it(tmp_path, edits):
    path = tmp_path / "run.json"
    path.write_bytes(edited(TEXT, edits))
    try:
        run = load_run(path)
    except InputError as error:
        assert str(path) in str(error)
    else:  # then it says what the file says
        assert read_run(json.loads(path.read_text())) == run


@given(EDITS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_commands_end_with_code_0_or_2_whatever_the_file_holds(tmp_path, capsys, edits):
    path = tmp_path / "run.json"
    path.write_bytes(edited(TEXT, edits))
    code = cli.main(["sharding", str(path), "--json"])
    shown = capsys.readouterr()
    assert code in (0, 2)
    document = json.loads(shown.out)
    if code == 2:
        assert "error: " in shown.err and document["error"]


@pytest.mark.parametrize("cut", range(0, len(TEXT), max(1, len(TEXT) // 40)))
def test_a_file_cut_short_anywhere_is_refused(tmp_path, cut):
    path = tmp_path / "run.json"
    path.write_bytes(TEXT[:cut])
    with pytest.raises(InputError, match="run.json"):
        resolve(str(path))
