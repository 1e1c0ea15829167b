"""`scaling cluster`: the catalogue of machines."""

import json
import sys
from collections.abc import Sequence

from meshes import catalog
from meshes.describe import as_json, sources, tree
from meshes.errors import InputError


def cluster_command(
    action: str, target: str | None, nodes: int, overrides: Sequence[str], wants_json: bool
) -> int:
    """List, show or check; returns the exit code."""
    if action == "list":
        if target is not None:
            raise InputError(f"scaling cluster list takes no name; did you mean show {target}?")
        return _list(wants_json)
    if target is None:
        what = "FILE.toml" if action == "check" else "NAME"
        raise InputError(f"scaling cluster {action} needs {what}")
    if action == "check":
        return _check(target, wants_json)
    cluster = catalog.load(target, nodes, catalog.parse_overrides(overrides))
    if wants_json:
        print(json.dumps(as_json(cluster)))
    else:
        print(tree(cluster) + "\n\n" + sources(cluster))
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
