"""Output files: refused before the work where they cannot be written or would harm another."""

import os
from pathlib import Path

import pytest

from scaling.api.output_paths import check_outputs
from scaling.meshes.errors import InputError


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.json").write_text("{}")
    (tmp_path / "folder").mkdir()
    return tmp_path


def refused(outputs, inputs, words):
    with pytest.raises(InputError, match=words):
        check_outputs({o: p and Path(p) for o, p in outputs.items()}, map(Path, inputs))


def test_a_new_file_and_one_written_before_are_fine_and_stay_as_they_are(place):
    (place / "old.json").write_text("old")
    check_outputs({"--trace": Path("new.json"), "--dump-hlo": Path("old.json"), "--x": None})
    assert (place / "old.json").read_text() == "old" and not (place / "new.json").exists()


@pytest.mark.parametrize("path", ["own.json", "./folder/../own.json", "link.json", "hard.json"])
def test_an_input_is_not_written_over_whatever_it_is_called(place, path):
    (place / "link.json").symlink_to("own.json")
    os.link("own.json", "hard.json")
    refused({"--trace": path}, ["own.json"], r"--trace .* would write over own.json, which is read")


def test_nothing_is_written_into_a_folder_that_is_read(place):
    refused({"--trace": "folder/new.json"}, ["folder"], "would write over folder")
    check_outputs({"--trace": Path("folder2.json")}, [Path("folder")])


@pytest.mark.parametrize("paths", [("a", "a"), ("a", "./folder/../a"), ("own.json", "own.json")])
def test_two_outputs_are_two_files(place, paths):
    refused(dict(zip(("--a", "--b"), paths, strict=True)), [], "--a and --b both name")


def test_only_a_trace_renews_a_folder_of_xprof(place):
    Path("t.xprof").mkdir()
    check_outputs({"--trace": Path("t.xprof")})
    refused({"--save": "t.xprof"}, [], "--save t.xprof is a folder")


def test_what_throws_everything_away_may_be_named_twice(place):
    check_outputs({"--a": Path("/dev/null"), "--b": Path("/dev/null")})
    assert Path("/dev/null").exists()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nowhere/t.json", "--trace nowhere/t.json: there is no folder nowhere"),
        ("own.json/t.json", "--trace own.json/t.json: own.json is no folder"),
        ("folder", "--trace folder is a folder; name a file in it"),
        ("file.xprof", "--trace file.xprof is a file; a trace for XProf is a folder"),
        ("a.xplane.pb", "for XProf name a folder, such as a.xprof"),
        ("x" * 300, "cannot write xxx.*: File name too long; choose another --trace"),
        ("/proc/new.json", "cannot write /proc/new.json: "),
    ],
)
def test_where_nothing_can_be_written_is_said(place, path, words):
    Path("file.xprof").touch()
    refused({"--trace": path}, [], words)
