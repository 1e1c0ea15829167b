"""`scaling calibrate`: where the file goes and what is said; the measuring has tests of its own."""

from dataclasses import replace

import pytest

from scaling.calibration import calibrate as measuring
from scaling.meshes.errors import InputError
from scaling.profiles.calibrations import calibration_path, host_calibration
from scaling.profiles.io import read_profile
from scaling.profiles.machine import host
from scaling.profiles.profile import CollectiveFit, Evidence, MatmulFit, MemoryFit
from scaling.report.fits import table
from tests.scaling.cli.running import run
from tests.scaling.host_profile import host_profile

HERE = Evidence("here", "2026-11-21", "calibrated", 9, 0.01, 0.02, 0.3, None)
PROFILE = host_profile(
    matmul=(MatmulFit("fp32", 1.0, HERE, peak=1e10),),
    memory=MemoryFit(1.0, replace(HERE, held_out_error=0.04), bandwidth=1e10),
    collectives=(CollectiveFit("all-gather", 4, 2, 1e-5, 1e9, HERE),),
)


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Runs `scaling calibrate WORDS`, where measuring takes no time: (code, out, err, asked)."""
    asked = []

    def measure(quick, progress):
        asked.append(quick)
        progress("measuring")
        return PROFILE

    monkeypatch.setenv("SCALING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measuring, "calibrate", measure)

    return lambda *words: (*run(capsys, "calibrate", *words), asked)


def test_the_file_is_found_by_the_next_prediction(cli):
    code, out, err, asked = cli("--quick", "--devices", 8)
    assert (code, asked) == (0, [True])
    assert f"calibration: {calibration_path(host(8))}" in out and "next: " in out
    assert err == "measuring\n"
    assert host_calibration(8) == PROFILE
    assert len(list(calibration_path("").parent.iterdir())) == 1


def test_the_file_may_be_named(cli, tmp_path):
    assert cli("--out", tmp_path / "deep/mine.json")[3] == [False]
    assert read_profile(tmp_path / "deep/mine.json") == PROFILE


def test_nothing_is_made_before_measuring(cli, tmp_path, monkeypatch):
    def fail(*_):
        raise InputError("no devices")

    monkeypatch.setattr(measuring, "calibrate", fail)
    assert cli("--out", tmp_path / "deep/mine.json")[0] == 2
    assert not (tmp_path / "deep").exists()


def test_a_place_that_cannot_be_written_is_found_before_measuring(cli, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err, asked = cli("--out", tmp_path / "file/mine.json")
    assert (code, asked) == (2, [])
    assert err.startswith("error: --out ") and "file is no folder" in err
    code, _, err, asked = cli("--out", tmp_path / "file/deep/mine.json")
    assert (code, asked) == (2, [])
    assert err.startswith("error: cannot write") and "choose another --out" in err


@pytest.mark.parametrize("devices", [0, -1, 1025, 10**9])
def test_no_devices_or_too_many_cannot_be_measured(cli, devices):
    code, _, err, asked = cli("--devices", devices)
    words = f"--devices {devices} must be a positive whole number, at most 1,024"
    assert (code, asked) == (2, []) and words in err


def test_the_report_has_a_line_for_every_fit():
    head, titles, *lines = table(PROFILE).split("\n")
    assert head == f"{host(8)}, 2026-11-21"
    assert titles.split() == [
        "fit",
        "samples",
        "median",
        "error",
        "mean",
        "worst",
        "left",
        "out",
        "(mean)",
    ]
    assert [line.split("  ")[0] for line in lines] == [
        "matmul fp32", "memory", "vector units", "all-gather x4 in 2",
    ]  # fmt: skip
    assert lines[0].split()[-5:] == ["9", "1.0%", "2.0%", "30.0%", "-"]
    assert lines[1].split()[-1] == "4.0%"
