"""`scaling cluster`: the catalogue of machines."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

import scaling as sc
from scaling.cli.options import Command, File, KeyValues, Switch, Text, TextOrNone, Whole
from scaling.meshes import catalog
from scaling.meshes.catalog.topology import cluster_from_topology
from scaling.meshes.catalog.write import cluster_toml
from scaling.meshes.errors import InputError
from scaling.meshes.reading import read_text
from scaling.report.cluster import page
from scaling.report.cluster_json import as_json

TO_EDIT = """A complete cluster file: change it, then `scaling cluster check FILE.toml`.
Figures may be plain numbers or texts with a unit, "25Gb/s" or "25GB/s"; sources may be left out.
docs/clusters.md explains every key."""
TO_COMPLETE = """Made from nvidia-smi topo -m, which names no speeds: replace what is assumed.
For more than one host add a link with parts = ["nic", "leaf"], kind = "network" and the speed of
a NIC in bytes/s, and a [fabric]; `scaling cluster check THIS_FILE` tells what is missing."""


@dataclass(frozen=True)
class ClusterCommand(Command):
    """List the catalogue of clusters, show one as a tree with its sources, or check a file.

    Example: scaling cluster show dgx-h100
    """

    action: Annotated[Positional[Literal["list", "show", "check"]], arg(metavar="ACTION")]
    """list, show NAME, or check FILE.toml."""
    target: Annotated[Positional[TextOrNone], arg(metavar="[NAME]", help_behavior_hint="")] = None
    """Catalogue name or TOML file."""
    nodes: Whole = 1
    """Number of hosts to show."""
    override: KeyValues = ()
    """A figure on top of the catalogue's, such as node_network_bandwidth=3200Gb/s."""
    topology: File = None
    """Output of nvidia-smi topo -m; check writes the machine as a cluster file."""
    accelerator: Text = None
    """The GPUs of that machine, a catalogue name or TOML file."""
    toml: Switch = False
    """Show NAME as a complete cluster file, to start one of your own from."""
    plot: File = None
    """Show: write a picture of the chips and the levels of the network (.png or .svg)."""
    json: Switch = False
    """Print one JSON document."""

    @property
    def subject(self) -> str:
        """The cluster, or what is done."""
        return self.target or self.action

    def execute(self) -> int:
        """List, show or check."""
        action, target = self.action, self.target
        if self.toml and (action != "show" or self.json):
            raise InputError("--toml prints a file: write scaling cluster show NAME --toml")
        if self.plot is not None and (action != "show" or self.toml):
            raise InputError("--plot draws a cluster: write scaling cluster show NAME --plot FILE")
        if self.topology is not None or self.accelerator is not None:
            return self._from_topology()
        if action == "list":
            if target is not None:
                raise InputError(f"scaling cluster list takes no name; did you mean show {target}?")
            return self._list()
        if target is None:
            what = "FILE.toml" if action == "check" else "NAME"
            raise InputError(f"scaling cluster {action} needs {what}")
        return self._check(target) if action == "check" else self._show(target)

    def _list(self) -> int:
        clusters = [catalog.load(name) for name in catalog.names()]
        width = max(len(c.name) for c in clusters)
        document = [{"name": c.name, "title": c.title} for c in clusters]
        lines = (f"{c.name.ljust(width)}  {c.title}" for c in clusters)
        print(json.dumps(document) if self.json else "\n".join(lines))
        return 0

    def _show(self, target: str) -> int:
        if self.toml:
            print(cluster_toml(catalog.one_host(target), TO_EDIT), end="")
            return 0
        cluster = sc.load_cluster(target, self.nodes, overrides=self.override)
        for warning in catalog.warnings_of(target, cluster):
            print(f"warning: {warning}", file=sys.stderr)
        if self.plot is not None:
            self._draw(cluster, self.plot)
        print(json.dumps(as_json(cluster)) if self.json else page(cluster))
        return 0

    def _draw(self, cluster: "sc.Cluster", path: Path) -> None:
        from scaling.api.output_paths import check_outputs
        from scaling.pictures.cluster import cluster_levels
        from scaling.pictures.files import check_picture, write_picture

        check_outputs({"--plot": path})
        check_picture("--plot", path)
        write_picture(cluster_levels(cluster, f"{cluster.name}: {cluster.title}"), path)

    def _check(self, path: str) -> int:
        if os.path.exists(path) and not path.endswith(".toml"):
            raise InputError(f"scaling cluster check reads a .toml file, {path} is none")
        found = catalog.check(path)
        wrong = any(line.startswith("error") for line in found)
        if self.json:
            document = {"name": path, "ok": not wrong, "findings": found}
            print(json.dumps(document | ({"error": "\n".join(found)} if wrong else {})))
        elif not found:
            print(f"{path}: no problem found")
        for line in found if wrong or not self.json else []:
            print(line, file=sys.stderr if wrong else sys.stdout)
        return 2 if wrong else 0

    def _from_topology(self) -> int:
        """Print the cluster file of the machine whose `nvidia-smi topo -m` is in a file."""
        path, chip = self.topology, self.accelerator
        if self.action != "check" or self.target is not None or path is None or chip is None:
            raise InputError(
                "write scaling cluster check --topology FILE --accelerator NAME, where FILE holds "
                "the output of `nvidia-smi topo -m`"
            )
        cluster = cluster_from_topology(read_text(path), catalog.accelerator(chip))
        written = cluster_toml(cluster, TO_COMPLETE)
        if self.json:
            document = {"name": cluster.name, "ok": True, "findings": [], "toml": written}
            print(json.dumps(document | {"cluster": as_json(cluster)}))
        else:
            print(written, end="")
        return 0
