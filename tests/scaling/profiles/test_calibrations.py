"""Which calibration of this machine is nearest."""

import json
import os
import warnings
from dataclasses import replace

import pytest

from scaling.profiles.calibrations import calibration_folder, calibration_path, host_calibration
from scaling.profiles.io import write_profile
from scaling.profiles.machine import host
from scaling.profiles.profile import CollectiveFit
from tests.scaling.host_profile import HERE, host_profile

PROFILE = host_profile(collectives=(CollectiveFit("all-gather", 2, 1, 1e-5, 1e9, HERE),))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))
    calibration_folder().mkdir()
    return calibration_folder()


def keep(file, age=0, **changes):
    path = calibration_folder() / f"{file}.json"
    write_profile(replace(PROFILE, **changes), path)
    os.utime(path, (1e9 - age, 1e9 - age))


def test_there_is_none_where_nothing_was_measured(folder):
    assert host_calibration(8) is None
    folder.rmdir()
    assert host_calibration(8) is None


def test_the_one_of_as_many_devices_is_taken_then_the_nearest():
    for devices in (2, 8):
        keep(f"{devices}", machine=host(devices))
    assert host_calibration(8).machine == host(8)
    assert host_calibration(2).machine == host(2)
    assert host_calibration(64).machine == host(8)
    assert host_calibration(1).machine == host(2)


def test_several_devices_need_collectives():
    keep("one", machine=host(1), collectives=())
    assert host_calibration(1).machine == host(1)
    assert host_calibration(2) is None


def test_of_equals_the_one_of_this_very_machine_then_the_newest_is_taken():
    keep("other", machine="8 x cpu (Another CPU, 64 cores)")
    keep("here", age=10, name="mine")
    keep("old", age=99, name="older")
    assert host_calibration(8).name == "mine"


def test_those_of_gpus_and_broken_files_are_left_out(folder):
    keep("gpu", machine="8 x NVIDIA H100 80GB HBM3")
    (folder / "cut.json").write_text('{"name": "this ma')
    with pytest.warns(UserWarning, match="a calibration is not used: .*cut.json is not JSON"):
        assert host_calibration(8) is None


def test_no_changed_digit_makes_another_calibration(folder):
    keep("8", machine=host(8))
    path = folder / "8.json"
    whole, kept = path.read_text(), host_calibration(8)
    refused = 0
    for at in [at for at, c in enumerate(whole) if c.isdigit()]:
        path.write_text(f"{whole[:at]}{9 - int(whole[at])}{whole[at + 1 :]}")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = host_calibration(8)
        assert found == kept or (found is None and len(said) == 1)
        refused += found is None
    assert refused > 50


def test_a_file_without_a_hash_is_one_that_somebody_wrote(folder):
    keep("8", machine=host(8))
    document = json.loads((folder / "8.json").read_text())
    document["collectives"][0]["alpha"] = 1.0
    (folder / "8.json").write_text(json.dumps(document))
    with pytest.warns(UserWarning, match="delete the key sha256 if you changed it yourself"):
        assert host_calibration(8) is None
    del document["sha256"]
    (folder / "8.json").write_text(json.dumps(document))
    assert host_calibration(8).collectives[0].alpha == 1.0


def test_a_machine_has_a_file_that_any_system_can_name(tmp_path):
    path = calibration_path("8 x cpu (Intel(R) Xeon(R) @ 2.60GHz, 2 cores)")
    assert path.parent == tmp_path / "calibrations"
    assert path.name == "8-x-cpu--intel-r--xeon-r----2-60ghz--2-cores.json"
