"""docs/clusters.md: every command in it runs, every file in it is sound, every key has a line."""

import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from scaling.cli.main import main
from scaling.meshes import catalog
from scaling.meshes.catalog.cluster_file import CLUSTER_KEYS
from scaling.meshes.catalog.overrides import KEYS
from scaling.meshes.cluster import HOST_PARTS, CpuMake, Fabric, Interconnect, LinkSpec, Transport
from scaling.meshes.torus import Torus

GUIDE = (Path(__file__).parents[3] / "docs" / "clusters.md").read_text(encoding="utf-8")
TOPOLOGY = """
        GPU0    GPU1    CPU Affinity    NUMA Affinity
GPU0     X      NV18    0-31            0
GPU1    NV18     X      0-31            0
"""


def blocks(language):
    """Texts of the fenced blocks of a language."""
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", GUIDE, re.DOTALL | re.MULTILINE)


def commands():
    lines = [line.strip() for block in blocks("sh") for line in block.splitlines()]
    assert len(lines) >= 7 and all(line.startswith("scaling ") for line in lines)
    return lines


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the guide speaks of."""
    lab, gpu = blocks("toml")
    for name, text in (("lab", lab), ("mine", lab), ("my-gpu", gpu)):
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    (tmp_path / "bandwidth.json").write_text(blocks("json")[-1], encoding="utf-8")
    (tmp_path / "topo.txt").write_text(TOPOLOGY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("line", [c for c in commands() if " predict " not in c])
def test_every_command_of_the_guide_runs(line, folder, capsys):
    line, _, target = line.partition(" > ")
    assert main(shlex.split(line)[1:]) == 0
    out, err = capsys.readouterr()
    assert out and "warning" not in err
    if target:
        (folder / target).write_text(out, encoding="utf-8")
        assert catalog.check(folder / target) == []


@pytest.mark.deviceless
@pytest.mark.parametrize("line", [c for c in commands() if " predict " in c])
def test_every_prediction_of_the_guide_runs(line, folder, capsys):
    assert main(shlex.split(line)[1:]) == 0
    assert "lab" in capsys.readouterr().out


def test_the_files_of_the_guide_pass_the_check(folder):
    assert catalog.check("lab.toml") == catalog.check("my-gpu.toml") == []
    cluster = catalog.load("lab.toml", 4)
    assert cluster.devices == 16 and cluster.node_network_bandwidth == 25e9 / 8
    assert catalog.accelerator("my-gpu.toml").memory == 32 * 2**30


def test_the_guide_names_every_key():
    choices = [
        word for hint in (Interconnect, Transport, CpuMake) for word in get_args(hint) if word
    ]
    known = [*CLUSTER_KEYS, *KEYS, *HOST_PARTS, *choices]
    known += [f.name for entry in (LinkSpec, Fabric, Torus) for f in fields(entry)]
    hidden = {"sources", "virtual_devices", "wrap_whole"}  # of the catalogue's own files
    assert [key for key in known if key not in GUIDE and key not in hidden] == []
