"""run.json under fire: keys misspelt at every level, bytes torn and turned.

Either a run comes out that says what the file says, or one message; never a traceback, and never a
default in place of what somebody tried to set.
"""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.run import load_run, read_run
from tests.scaling.run.test_run import FULL

FREE = ("cluster", "overrides")  # a table whose keys are those of the cluster, checked with it


def tables(data, path=()):
    """Every table of a document, by its path."""
    yield path, data
    for key, value in data.items():
        if isinstance(value, dict):
            yield from tables(value, (*path, key))


KEYS = [(path, key) for path, table in tables(FULL) for key in table if path != FREE]


def renamed(data, path, old, new):
    """The document with one key of one table spelt otherwise."""
    if not path:
        return {new if key == old else key: value for key, value in data.items()}
    first, *rest = path
    return {**data, first: renamed(data[first], rest, old, new)}


@pytest.mark.parametrize(("path", "key"), KEYS, ids=lambda part: ".".join(part) or "-")
def test_a_misspelt_key_at_any_level_is_never_a_silent_default(path, key):
    table = dict(tables(FULL))[path]
    for wrong in (
        f"{key}_x",
        key[:-1],
        key[1:],
        key.capitalize(),
        f"{key} ",
        key.replace("_", "-"),
    ):
        if wrong not in table:
            with pytest.raises(InputError) as refused:
                read_run(renamed(FULL, path, key, wrong))
            said = str(refused.value)
            assert re.search(f"unknown (key|axis) {re.escape(repr(wrong))}", said)
            assert key in said and all(table in said for table in path)


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
