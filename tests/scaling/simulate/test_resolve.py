"""Where a run is priced: the command line first, then the run, then this machine."""

import re
from dataclasses import replace
from importlib.resources import files

import pytest

from scaling.api.inputs import as_overrides
from scaling.api.runs import load_run
from scaling.meshes.errors import InputError
from scaling.models.lora import Lora
from scaling.profiles.calibrations import calibration_path, machine_of, profile_for
from scaling.profiles.io import profile_of, write_profile
from scaling.profiles.machine import host, versions
from scaling.profiles.profile import CollectiveFit
from scaling.run import ClusterChoice, Precision, Train
from scaling.simulate.resolve import (
    check_compilable,
    chosen_source,
    cluster_from_record,
    cluster_record,
    target_warnings,
)
from scaling.simulate.resolve import target as target_of
from tests.scaling.host_profile import HERE, host_profile


def target(run, cluster=None, nodes=None, mesh=None, device_order=None, overrides=None):
    """The run with another mesh, on a cluster."""
    run = load_run(run, mesh=mesh, device_order=device_order)
    return target_of(run, cluster, nodes, as_overrides(overrides))


ORDER = "tensor,data,stage,expert,context,fsdp"


def calibrated(devices):
    gathers = (CollectiveFit("all-gather", devices, 1, 1e-5, 1e9, HERE),)
    return host_profile(devices, versions=versions(), collectives=gathers)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Keeps calibrations in an empty cache: kept(8)."""
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))

    def keep(devices):
        profile = calibrated(devices)
        path = calibration_path(profile.machine)
        path.parent.mkdir(exist_ok=True)
        write_profile(profile, path)
        return path

    return keep


@pytest.fixture
def run(toy):
    return replace(toy(), mesh=None)


def on(run, name, **choice):
    return replace(run, cluster=ClusterChoice(name=name, **choice))


# --- the cluster --------------------------------------------------------------------------------


def test_the_command_line_comes_before_the_run(run):
    stated = on(run, "dgx-a100", nodes=2)
    assert target(stated).cluster.name == "dgx-a100"
    assert target(stated).cluster.nodes == 2
    assert target(stated, "dgx-h100").cluster.name == "dgx-h100"
    assert target(stated, "dgx-h100").cluster.nodes == 1
    assert target(stated, nodes=3).cluster.nodes == 3


def test_overrides_of_run_and_command_line_both_count_the_latter_first(run):
    stated = on(run, "dgx-h100", overrides={"memory": 40e9, "memory_bandwidth": 1e12})
    chip = target(stated, overrides=["memory=20GB"]).cluster.accelerator
    assert (chip.memory, chip.memory_bandwidth) == (20e9, 1e12)
    fresh = target(stated, "dgx-h100").cluster.accelerator
    assert fresh.memory_bandwidth != 1e12


def test_a_cluster_of_the_users_own_may_be_a_file(run, tmp_path):
    text = (files("scaling.meshes.catalog") / "clusters/dgx-a100.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('name = "dgx-a100"', 'name = "mine"'))
    assert target(run, str(path)).cluster.name == "mine"
    stated = replace(run, cluster=ClusterChoice(file=str(path), nodes=2))
    assert target(stated).cluster.devices == 16


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"cluster": "dgx-h10"}, "did you mean 'dgx-h100'"),
        ({"cluster": "none.toml"}, "cannot read none.toml"),
        ({"cluster": "dgx-h100", "nodes": 0}, "nodes=0 must be a whole number"),
        ({"cluster": "host", "nodes": 2}, "state the rate of a host's link"),
        ({"cluster": "dgx-h100", "overrides": ["memroy=1GB"]}, "did you mean 'memory'"),
        ({"cluster": "dgx-h100", "mesh": "fsdp=16"}, "needs 16 devices.*use --nodes 2"),
        ({"cluster": "dgx-h100", "mesh": "fdsp=8"}, "unknown axis 'fdsp'; did you mean 'fsdp'"),
        ({"cluster": "dgx-h100", "device_order": "fsdp,dta"}, "unknown axis 'dta'"),
    ],
)
def test_bad_targets_say_what_is_wrong(run, arguments, words):
    with pytest.raises(InputError, match=words):
        target(run, **arguments)


# --- the mesh -----------------------------------------------------------------------------------


def test_without_a_mesh_all_devices_are_fsdp(run):
    assert target(run, "dgx-h100", nodes=4).mesh.fsdp == 32
    assert target(run, "dgx-h100", overrides=["gpus_per_node=2"]).mesh.fsdp == 2
    assert target(run, "dgx-h100").run.mesh == target(run, "dgx-h100").mesh


def test_the_device_order_can_be_given(toy):
    for run in (toy(mesh={"fsdp": 2, "tensor": 2}), replace(toy(), mesh=None)):
        found = target(run, "dgx-h100", device_order=ORDER)
        assert found.mesh.device_order == tuple(ORDER.split(","))
        assert found.run.device_order == tuple(ORDER.split(","))
    spaced = target(toy(), "dgx-h100", mesh="fsdp=8", device_order=ORDER.replace(",", ", "))
    assert list(spaced.mesh.sizes)[0] == "tensor"


def test_this_machine_has_as_many_devices_as_the_mesh_and_shares_its_memory(run):
    two, eight = (target(run, "host", mesh=f"fsdp={n}").cluster for n in (2, 8))
    assert (two.devices, eight.devices) == (2, 8)
    assert two.accelerator.usable_memory == 4 * eight.accelerator.usable_memory
    given = target(run, "host", overrides=["memory=1GB"]).cluster.accelerator
    assert given.usable_memory == 1e9


# --- what can be compiled -----------------------------------------------------------------------


def test_what_the_trainer_cannot_run_is_named(run):
    run = replace(run, dropout=0.5)
    with pytest.raises(InputError, match="^predict: dropout 0.5 is not yet trained"):
        check_compilable(target(run, "dgx-h100", mesh="stage=2"))


def test_settings_and_meshes_that_cannot_be_are_refused(run):
    without = replace(run, train=replace(run.train, steps=0))
    with pytest.raises(InputError, match="train.steps=0 must be at least 1"):
        chosen_source(target(without, "dgx-h100"), "analytic")
    adapted = replace(run, train=Train(lora=Lora(targets=("no",))))
    for source in ("auto", "analytic"):
        with pytest.raises(InputError, match="no matrix no in this model"):
            chosen_source(target(adapted, "dgx-h100"), source)
    with pytest.raises(InputError, match="not divisible by fsdp=3"):
        chosen_source(target(run, "dgx-h100", mesh="fsdp=3"), "auto")


def test_auto_compiles_what_the_trainer_runs_and_says_why_it_does_not(run):
    where = target(run, "dgx-h100")
    assert chosen_source(where, "auto") == ("compiled", [])
    assert chosen_source(where, "analytic") == ("analytic", [])
    packed = replace(where, run=replace(where.run, train=Train(documents="packed")))
    assert chosen_source(packed, "auto") == ("compiled", [])
    source, notes = chosen_source(packed, "analytic")
    assert source == "analytic" and "packed documents" in notes[0]
    source, (why,) = chosen_source(replace(where, run=replace(run, dropout=0.5)), "auto")
    assert source == "analytic" and "dropout 0.5 is not yet trained" in why
    others = replace(where, run=replace(run, software="megatron"))
    assert chosen_source(others, "auto") == ("analytic", [])
    with pytest.raises(InputError, match="megatron"):
        chosen_source(others, "compiled")


def with_chip(found, **changes):
    chip = replace(found.cluster.accelerator, **changes)
    return replace(found, cluster=replace(found.cluster, accelerator=chip))


def test_a_chip_without_device_less_compile_is_refused(run):
    found = target(run, "dgx-h100")
    for changes in ({"vendor": "AMD"}, {"compute_capability": 6.0}, {"compute_capability": None}):
        with pytest.raises(InputError, match="h100-sxm cannot be compiled for without the device"):
            check_compilable(with_chip(found, **changes))


def test_a_format_that_the_chip_lacks_is_refused_but_tf32_falls_back(run):
    old = with_chip(target(run, "dgx-h100"), peaks={"fp16": 1e14, "fp32": 1e13})
    in_bf16 = replace(old, run=replace(old.run, precision=Precision(compute="bf16")))
    with pytest.raises(InputError, match="fp16, fp32; use --set precision.compute=fp32$"):
        check_compilable(in_bf16)
    check_compilable(replace(old, run=replace(old.run, precision=Precision(compute="tf32"))))


# --- the profile --------------------------------------------------------------------------------


def test_gpus_have_the_profile_that_is_shipped(run, kept):
    cluster = target(run, "dgx-h100").cluster
    assert profile_for(cluster) == (profile_of(cluster.accelerator), [])


def test_this_machine_has_to_be_measured_once(run, kept):
    here = target(run, "host", mesh="fsdp=4").cluster
    with pytest.raises(InputError, match="run `scaling calibrate --quick --devices 4`"):
        profile_for(here)
    kept(4)
    assert profile_for(here) == (calibrated(4), [])


def test_another_number_of_devices_is_a_doubt(run, kept):
    kept(8)
    profile, doubts = profile_for(target(run, "host", mesh="fsdp=4").cluster)
    assert profile.machine == host(8)
    assert doubts == [
        f"the calibration was measured on {host(8)}, this is {host(4)}; "
        "`scaling calibrate --devices 4` measures it"
    ]


def test_a_calibration_of_another_machine_is_used_with_a_doubt(run, kept):
    profile, doubts = profile_for(target(run, "dgx-h100").cluster, kept(8))
    assert profile.name == "this machine"
    assert len(doubts) == 1 and "this is 8 x NVIDIA H100" in doubts[0]


def test_a_calibration_of_another_version_is_used_with_a_doubt(run, tmp_path):
    path = tmp_path / "old.json"
    write_profile(replace(calibrated(8), version=0, versions={"jax": "0.1"}), path)
    _, doubts = profile_for(target(run, "host", mesh="fsdp=8").cluster, path)
    assert any("format 0, not 3" in doubt for doubt in doubts)
    assert any("measured with jax 0.1, this is" in doubt for doubt in doubts)


def test_a_calibration_that_is_none_is_refused(run, tmp_path):
    for text, words in (("{}", "missing"), ("nonsense", "is not JSON")):
        (tmp_path / "odd.json").write_text(text)
        with pytest.raises(InputError, match=words):
            profile_for(target(run, "dgx-h100").cluster, tmp_path / "odd.json")
    with pytest.raises(InputError, match="cannot read .*: No such file"):
        profile_for(target(run, "dgx-h100").cluster, tmp_path / "none.json")


def test_a_node_of_gpus_that_was_measured_here_has_its_own_calibration(run, kept):
    cluster = target(run, "dgx-h100").cluster
    profile = replace(calibrated(8), machine=machine_of(cluster))
    path = calibration_path(machine_of(cluster))
    path.parent.mkdir()
    write_profile(profile, path)
    assert profile_for(cluster) == (profile, [])
    for other in (target(run, "dgx-h100", nodes=2), target(run, "dgx-h200")):
        assert profile_for(other.cluster)[0] == profile_of(other.cluster.accelerator)
    path.write_text("cut short")
    with pytest.warns(UserWarning, match="not used"):
        assert profile_for(cluster)[0] == profile_of(cluster.accelerator)


# --- once more ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "mesh"), [("dgx-h100", "fsdp=8"), ("host", "fsdp=4")])
def test_a_recorded_cluster_is_made_again(run, name, mesh):
    found = target(run, name, mesh=mesh)
    assert (
        cluster_from_record(**cluster_record(found.cluster), own=found.run.cluster) == found.cluster
    )


# --- nodes without work -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "mesh", "words"),
    [
        (8, "fsdp=8", "uses 8 of the 64 devices of 8 nodes: .* --nodes 1"),
        (8, "fsdp=12", "uses 12 of the 64 devices of 8 nodes: .* --nodes 2"),
        (2, "fsdp=16", None),
        (2, "fsdp=12", None),
        (1, "fsdp=4", None),
    ],
)
def test_nodes_without_a_device_of_the_mesh_are_a_warning(run, nodes, mesh, words):
    found = target_warnings(target(run, "dgx-h100", nodes, mesh))
    assert len(found) == (words is not None)
    assert all(re.search(words, text) for text in found)
