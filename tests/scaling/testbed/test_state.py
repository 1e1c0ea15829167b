"""The records: whole or not at all, one for each name."""

import json
import os
from dataclasses import replace

import pytest

from scaling.meshes.errors import InputError
from scaling.testbed import state
from scaling.testbed.state import (
    all_states,
    complete_state,
    is_complete,
    read_state,
    remove_state,
    state_folder,
    write_state,
)


def test_records_are_in_the_user_s_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))
    assert state_folder() == tmp_path / "testbeds"
    monkeypatch.delenv("SCALING_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert state_folder() == tmp_path / "me" / ".cache" / "scaling" / "testbeds"


def test_a_record_is_read_back_listed_and_forgotten(testbed, tmp_path):
    other = replace(testbed, name="other", latency=1e-3)
    write_state(testbed, tmp_path)
    write_state(other, tmp_path)
    assert read_state("lab", tmp_path) == testbed
    assert list(all_states(tmp_path)) == [testbed, other]
    remove_state(testbed, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["other.json"]  # no draft stays


def test_a_name_is_taken_once(testbed, tmp_path):
    write_state(testbed, tmp_path)
    with pytest.raises(InputError, match="already"):
        write_state(replace(testbed, id="ffffffff"), tmp_path)
    assert read_state("lab", tmp_path) == testbed
    assert len(list(tmp_path.iterdir())) == 1


def test_a_testbed_that_is_not_there_names_those_that_are(testbed, tmp_path):
    with pytest.raises(InputError, match="none at all; scaling testbed up"):
        read_state("lab", tmp_path / "nowhere")
    write_state(testbed, tmp_path)
    with pytest.raises(InputError, match="'lab'"):
        read_state("lap", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "testbed": {}}',
        '{"version": 1, "testbed": []}',
        '{"version": 1, "testbed": {"name": "lab"}}',
        "\udcff",
    ],
)
def test_a_file_that_is_no_record_is_bad_input(tmp_path, text):
    (tmp_path / "lab.json").write_text(text, errors="surrogateescape")
    with pytest.raises(InputError, match="lab.json is not the file of a testbed"):
        read_state("lab", tmp_path)


def test_a_record_under_another_name_is_bad_input(testbed, tmp_path):
    write_state(testbed, tmp_path)
    document = json.loads((tmp_path / "lab.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="about testbed 'lab'"):
        read_state("other", tmp_path)


def test_a_name_cannot_lead_elsewhere(tmp_path):
    with pytest.raises(InputError, match="--name"):
        read_state("../lab", tmp_path)


def test_a_folder_that_cannot_be_written_is_bad_input(testbed, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="set SCALING_CACHE"):
        write_state(testbed, tmp_path / "file" / "testbeds")


def test_a_record_says_whether_all_is_made(testbed, tmp_path):
    assert not is_complete(testbed, tmp_path)
    write_state(testbed, tmp_path)
    assert not is_complete(testbed, tmp_path)
    complete_state(testbed, tmp_path)
    assert is_complete(testbed, tmp_path) and read_state("lab", tmp_path) == testbed
    assert os.listdir(tmp_path) == ["lab.json"]


@pytest.mark.parametrize("text", ["", "[]", "\udcff"])
def test_what_is_no_record_is_not_complete(testbed, tmp_path, text):
    (tmp_path / "lab.json").write_text(text, errors="surrogateescape")
    assert not is_complete(testbed, tmp_path)


def test_a_testbed_removed_while_they_are_listed_is_left_out(testbed, tmp_path):
    other, third = replace(testbed, name="other"), replace(testbed, name="third")
    for each in (testbed, other, third):
        write_state(each, tmp_path)
    listed = all_states(tmp_path)
    assert next(listed) == testbed
    remove_state(other, tmp_path)
    assert list(listed) == [third]


def test_one_who_has_the_name_by_now_is_not_forgotten(testbed, tmp_path):
    write_state(testbed, tmp_path)
    remove_state(replace(testbed, id="ffffffff"), tmp_path)
    assert read_state("lab", tmp_path) == testbed
    remove_state(testbed, tmp_path)
    remove_state(testbed, tmp_path)  # once more is no error
    assert os.listdir(tmp_path) == []


def test_what_a_killed_up_left_of_a_draft_goes_with_the_next_of_its_name(testbed, tmp_path):
    for name in ("lab.ffffffff.draft", "lab-2.ffffffff.draft"):
        (tmp_path / name).write_text("{")
    write_state(testbed, tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["lab-2.ffffffff.draft", "lab.json"]


def test_a_record_is_on_the_disk_before_it_has_its_name(testbed, tmp_path, monkeypatch):
    """Or a loss of power could leave an empty file of that name, and files that nobody removes."""
    seen = []
    monkeypatch.setattr(state, "_to_disk", lambda path: seen.append((path, os.listdir(tmp_path))))
    draft = f"lab.{testbed.id}.draft"
    write_state(testbed, tmp_path)
    assert seen == [(tmp_path / draft, [draft]), (tmp_path, ["lab.json"])]


def test_a_folder_that_is_a_file_is_bad_input(testbed, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write in .*file"):
        write_state(testbed, tmp_path / "file")
