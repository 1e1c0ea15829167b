"""`scaling cluster`: the catalogue of machines."""

import json as json_text
import os
import sys
from pathlib import Path
from typing import Literal

import scaling as sc
from scaling.api.output_paths import check_outputs
from scaling.cli.show import listed, show
from scaling.meshes import catalog
from scaling.meshes.catalog.topology import cluster_from_topology
from scaling.meshes.catalog.topology_text import OK, split_peers
from scaling.meshes.catalog.write import cluster_toml
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.reading import read_text
from scaling.report.cluster_json import as_json

ACTIONS = ("list", "show", "check")
TO_EDIT = """A complete cluster file: change it, then `scaling cluster check FILE.toml`.
Figures may be plain numbers or texts with a unit, "25Gb/s" or "25GB/s"; sources may be left out.
docs/clusters.md explains every key."""
TO_COMPLETE = """Made from nvidia-smi topo -m, which names no speeds: replace what is assumed.
For more than one host add a link with parts = ["nic", "leaf"], kind = "network" and the speed of
a NIC in bytes/s, and a [fabric]; `scaling cluster check THIS_FILE` tells what is missing."""
THROUGH_HOST = """What PCIe joins passes through host memory then: peer_access = false in a file, as
`scaling cluster show rtx3090-10` has it. Pairs that have NVLink use it all the same."""


def cluster(
    action: Literal["list", "show", "check"],
    name: str | None = None,
    *,
    nodes: int = 1,
    overrides: tuple[str, ...] = (),
    topology: Path | None = None,
    accelerator: str | None = None,
    toml: bool = False,
    plot: Path | None = None,
    json: bool = False,
) -> int:
    """List the catalogue of clusters, show one as a tree with its sources, or check a file.

    Args:
        action: what to do: list, show NAME, or check FILE.toml.
        name: catalogue name or TOML file.
        nodes: number of hosts to show.
        overrides: a figure on top of the catalogue's, such as node_network_bandwidth=3200Gb/s.
        topology: output of nvidia-smi topo -m, and of -p2p r behind it; check writes the machine as
            a cluster file, and of -p2p alone says who has peer access.
        accelerator: the GPUs of that machine, a catalogue name or TOML file.
        toml: show NAME as a complete cluster file, to start one of your own from.
        plot: show: write a picture of the chips and the levels of the network (.png or .svg).
    """
    check_keys([action], ACTIONS, "scaling cluster", "action")
    if toml and (action != "show" or json):
        raise InputError("--toml prints a file: write scaling cluster show NAME --toml")
    if plot is not None and (action != "show" or toml):
        raise InputError("--plot draws a cluster: write scaling cluster show NAME --plot FILE")
    if topology is not None and accelerator is None and (action, name) == ("check", None):
        return _peers(topology, json)
    if topology is not None or accelerator is not None:
        if action != "check" or name is not None or topology is None or accelerator is None:
            raise InputError(
                "write scaling cluster check --topology FILE --accelerator NAME, where FILE holds "
                "the output of `nvidia-smi topo -m`"
            )
        return _from_topology(topology, accelerator, json)
    if action == "list":
        if name is not None:
            raise InputError(f"scaling cluster list takes no name; did you mean show {name}?")
        return listed((catalog.load(name) for name in catalog.names()), json)
    if name is None:
        what = "FILE.toml" if action == "check" else "NAME"
        raise InputError(f"scaling cluster {action} needs {what}")
    if action == "check":
        return _check(name, json)
    if toml:
        print(cluster_toml(catalog.one_host(name), TO_EDIT), end="")
        return 0
    check_outputs({"--plot": plot})
    machine = sc.load_cluster(name, nodes, overrides=overrides)
    for warning in catalog.warnings_of(name, machine):
        print(f"warning: {warning}", file=sys.stderr)
    return show(machine, json, plot)


def _check(path: str, json: bool) -> int:
    if os.path.exists(path) and not path.endswith(".toml"):
        raise InputError(f"scaling cluster check reads a .toml file, {path} is none")
    findings = catalog.check(path)
    wrong = any(line.startswith("error") for line in findings)
    if json:
        document = {"name": path, "ok": not wrong, "findings": findings}
        print(json_text.dumps(document | ({"error": "\n".join(findings)} if wrong else {})))
    elif not findings:
        print(f"{path}: no problem found")
    for line in findings if wrong or not json else []:
        print(line, file=sys.stderr if wrong else sys.stdout)
    return 2 if wrong else 0


def _peers(topology: Path, json: bool) -> int:
    """Print who has peer access by the `nvidia-smi topo -p2p` in a file."""
    _, peers = split_peers(read_text(topology))
    if peers is None:
        raise InputError(
            f"{topology} has no matrix of `nvidia-smi topo -p2p r`; for one of `-m` name the GPUs "
            "by --accelerator"
        )
    refused = any(state != OK for state in peers.status.values())
    if json:
        status = {f"{a}-{b}": state for (a, b), state in peers.status.items()}
        print(json_text.dumps({"name": str(topology), "peer_access": not refused, "pairs": status}))
        return 0
    print(peers.words)
    print(THROUGH_HOST if refused else "they reach each other directly: peer_access = true")
    return 0


def _from_topology(topology: Path, accelerator: str, json: bool) -> int:
    """Print the cluster file of the machine whose `nvidia-smi topo -m` is in a file."""
    made = cluster_from_topology(read_text(topology), catalog.accelerator(accelerator))
    written = cluster_toml(made, TO_COMPLETE)
    if json:
        document = {"name": made.name, "ok": True, "findings": [], "toml": written}
        print(json_text.dumps(document | {"cluster": as_json(made)}))
    else:
        print(written, end="")
    return 0
