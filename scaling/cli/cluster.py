"""`scaling cluster`: the catalogue of machines."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from scaling.meshes import catalog
from scaling.meshes.catalog.topology import cluster_from_topology
from scaling.meshes.catalog.write import cluster_toml
from scaling.meshes.errors import InputError
from scaling.report.cluster import addresses, as_json, sources, tree
from scaling.report.levels import level_table
from scaling.simulate.resolve import parsed_overrides

TO_EDIT = """A complete cluster file: change it, then `scaling cluster check FILE.toml`.
Figures may be plain numbers or texts with a unit, "25Gb/s" or "25GB/s"; sources may be left out.
docs/clusters.md explains every key."""
TO_COMPLETE = """Made from nvidia-smi topo -m, which names no speeds: replace what is assumed.
For more than one host add a link with parts = ["nic", "leaf"], kind = "network" and the speed of
a NIC in bytes/s, and a [fabric]; `scaling cluster check THIS_FILE` tells what is missing."""


def cluster_command(
    action: str,
    target: str | None,
    nodes: int,
    overrides: Sequence[str],
    wants_json: bool,
    topology: Path | None = None,
    accelerator: str | None = None,
    wants_toml: bool = False,
) -> int:
    """List, show or check; returns the exit code."""
    if wants_toml and (action != "show" or wants_json):
        raise InputError("--toml prints a file: write scaling cluster show NAME --toml")
    if topology is not None or accelerator is not None:
        return _from_topology(action, target, topology, accelerator, wants_json)
    if action == "list":
        if target is not None:
            raise InputError(f"scaling cluster list takes no name; did you mean show {target}?")
        return _list(wants_json)
    if target is None:
        what = "FILE.toml" if action == "check" else "NAME"
        raise InputError(f"scaling cluster {action} needs {what}")
    if action == "check":
        if os.path.exists(target) and not target.endswith(".toml"):
            raise InputError(f"scaling cluster check reads a .toml file, {target} is none")
        return _check(target, wants_json)
    if wants_toml:
        print(cluster_toml(catalog.one_host(target), TO_EDIT), end="")
        return 0
    cluster = catalog.load(target, nodes, parsed_overrides(overrides))
    for doubt in catalog.warnings_of(target, cluster):
        print(f"warning: {doubt}", file=sys.stderr)
    if wants_json:
        print(json.dumps(as_json(cluster)))
    else:
        parts = (tree(cluster), level_table(cluster), sources(cluster), addresses(cluster))
        print("\n\n".join(filter(None, parts)))
    return 0


def _list(wants_json: bool) -> int:
    clusters = [catalog.load(name) for name in catalog.names()]
    if wants_json:
        print(json.dumps([{"name": c.name, "title": c.title} for c in clusters]))
        return 0
    width = max(len(c.name) for c in clusters)
    for cluster in clusters:
        print(f"{cluster.name.ljust(width)}  {cluster.title}")
    return 0


def _from_topology(
    action: str, target: str | None, path: Path | None, chip: str | None, wants_json: bool
) -> int:
    """Print the cluster file of the machine whose `nvidia-smi topo -m` is in a file."""
    if action != "check" or target is not None or path is None or chip is None:
        raise InputError(
            "write scaling cluster check --topology FILE --accelerator NAME, where FILE holds the "
            "output of `nvidia-smi topo -m`"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    cluster = cluster_from_topology(text, catalog.accelerator(chip))
    written = cluster_toml(cluster, TO_COMPLETE)
    if wants_json:
        document = {"name": cluster.name, "ok": True, "findings": [], "toml": written}
        print(json.dumps(document | {"cluster": as_json(cluster)}))
    else:
        print(written, end="")
    return 0


def _check(path: str, wants_json: bool) -> int:
    found = catalog.check(path)
    wrong = any(line.startswith("error") for line in found)
    if wants_json:
        document = {"name": path, "ok": not wrong, "findings": found}
        print(json.dumps(document | ({"error": "\n".join(found)} if wrong else {})))
    elif not found:
        print(f"{path}: no problem found")
    for line in found if wrong or not wants_json else []:
        print(line, file=sys.stderr if wrong else sys.stdout)
    return 2 if wrong else 0
