"""The records: whole or not at all, one for each name."""

import os
from dataclasses import replace

import pytest

from scaling.meshes.errors import InputError
from scaling.testbed.state import (
    Record,
    all_states,
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
    assert read_state("lab", tmp_path) == Record(testbed)
    assert [r.testbed for r in all_states(tmp_path)] == [testbed, other]
    with pytest.raises(InputError, match="already"):
        write_state(replace(testbed, id="ffffffff"), tmp_path)
    (tmp_path / "third.json").write_text((tmp_path / "lab.json").read_text())
    with pytest.raises(InputError, match="about testbed 'lab'"):
        read_state("third", tmp_path)
    (tmp_path / "third.json").unlink()
    remove_state(testbed, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["other.json"]  # no draft stays


def test_a_testbed_that_is_not_there_names_those_that_are(testbed, tmp_path):
    with pytest.raises(InputError, match="scaling testbed up makes one.*none at all"):
        read_state("lab", tmp_path / "nowhere")
    write_state(testbed, tmp_path)
    with pytest.raises(InputError, match="'lab'"):
        read_state("lap", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"testbed": []}',
        '{"testbed": {"name": "lab"}}',
        "\udcff",
    ],
)
def test_a_file_that_is_no_record_is_bad_input(tmp_path, text):
    (tmp_path / "lab.json").write_text(text, errors="surrogateescape")
    with pytest.raises(InputError, match="lab.json is not the file of a testbed"):
        read_state("lab", tmp_path)


def test_a_name_cannot_lead_elsewhere(tmp_path):
    with pytest.raises(InputError, match="--name"):
        read_state("../lab", tmp_path)


def test_a_folder_that_cannot_be_written_is_bad_input(testbed, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="set SCALING_CACHE"):
        write_state(testbed, tmp_path / "file" / "testbeds")


def test_a_record_says_whether_all_is_made(testbed, tmp_path):
    write_state(testbed, tmp_path)
    assert not read_state("lab", tmp_path).complete
    write_state(testbed, tmp_path, complete=True)
    assert read_state("lab", tmp_path) == Record(testbed, complete=True)
    assert os.listdir(tmp_path) == ["lab.json"]


def test_a_testbed_removed_while_they_are_listed_is_left_out(testbed, tmp_path):
    other, third = replace(testbed, name="other"), replace(testbed, name="third")
    for each in (testbed, other, third):
        write_state(each, tmp_path)
    listed = all_states(tmp_path)
    assert next(listed).testbed == testbed
    remove_state(other, tmp_path)
    assert [r.testbed for r in listed] == [third]


def test_one_who_has_the_name_by_now_is_not_forgotten(testbed, tmp_path):
    write_state(testbed, tmp_path)
    remove_state(replace(testbed, id="ffffffff"), tmp_path)
    assert read_state("lab", tmp_path).testbed == testbed
    remove_state(testbed, tmp_path)
    remove_state(testbed, tmp_path)  # once more is no error
    assert os.listdir(tmp_path) == []


def test_what_a_killed_up_left_of_a_draft_goes_with_the_next_of_its_name(testbed, tmp_path):
    (tmp_path / ".lab.json.draft").write_text("{")
    write_state(testbed, tmp_path)
    assert os.listdir(tmp_path) == ["lab.json"]
