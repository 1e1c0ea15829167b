"""config.json under fire: keys misspelt, bytes torn and turned: a model, or one message."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.models.config import ModelConfig
from scaling.models.huggingface.families import ANY_FAMILY, HARMLESS, families
from scaling.models.huggingface.read import read_config, translate

PUBLISHED = json.loads(Path(__file__).with_name("published.json").read_text())
LLAMA = PUBLISHED["llama3-8b"] | {"hidden_size": 64, "num_attention_heads": 8}
LLAMA_KEYS = {*families()["llama"].keys, *families()["llama"].only}
KNOWN = {"model_type", *HARMLESS, *ANY_FAMILY, *LLAMA_KEYS}
TEXT = json.dumps(LLAMA, indent=1).encode()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["rope_type", "type", "factor", "rope_theta", "x"]), inner, max_size=3
        )
    ),
    max_leaves=4,
)


def test_the_file_is_a_model():
    assert translate(LLAMA, "c.json").d_model == 64


@given(st.sampled_from(sorted(LLAMA)), st.integers(0, 30), st.sampled_from("abnotu_s"))
def test_a_misspelt_key_is_never_a_silent_default(key, at, letter):
    at %= len(key)
    for wrong in (key[:at] + key[at + 1 :], key[:at] + letter + key[at:], key.upper()):
        assume(wrong not in KNOWN)
        data = {wrong if k == key else k: v for k, v in LLAMA.items()}
        with pytest.raises(InputError):
            translate(data, "c.json")


@given(st.sampled_from(sorted(KNOWN)), JSON)
@example("rope_scaling", {"rope_type": ["llama3"]})
@example("rope_parameters", {"type": {}})
def test_any_value_of_any_key_is_a_model_or_bad_input(key, value):
    try:
        assert isinstance(translate(LLAMA | {key: value}, "c.json"), ModelConfig)
    except InputError as error:
        assert str(error)


@given(
    st.lists(
        st.tuples(st.integers(0, len(TEXT)), st.integers(0, 6), st.binary(max_size=4)),
        min_size=1,
        max_size=4,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_torn_or_turned_is_a_model_or_one_message_that_names_it(tmp_path, edits):
    text = TEXT
    for at, gone, new in edits:
        text = text[:at] + new + text[at + gone :]
    path = tmp_path / "config.json"
    path.write_bytes(text)
    try:
        assert isinstance(read_config(path), ModelConfig)
    except InputError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "is not JSON"),
        (json.dumps(LLAMA)[:-1] + ', "vocab_size": 9}', "'vocab_size' is given twice"),
    ],
    ids=["deep", "twice"],
)
def test_what_json_itself_would_crash_on_or_pass_over_is_refused(tmp_path, text, said):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=said):
        read_config(tmp_path)
