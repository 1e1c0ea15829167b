"""What can be chosen: groups of stored programs, and in each families for one slider.

    group    "splits of 64 GPUs"             programs of one comparison (`stored.Stored.group`)
    family   llama3-8b on dgx-h100           those of it that share all but what the slider changes
    stop     data=8,fsdp=8                   one program; its label says what the slider changes

The slider moves the mesh where it differs within a group, else what takes the most values. Programs
are split by anything else into families, wherever each family keeps two programs or more.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from scaling.course.language import language, t
from scaling.meshes import catalog
from scaling.meshes.errors import check_keys
from scaling.program.stored import StoredProgram, stored_programs
from scaling.simulate.what_if import FIGURES, has_figure

FEWEST = 2  # stops of a family that is worth a slider
PLACE = ("run", "cluster")  # what names a family before its settings
SHORT = {  # how labels call a setting; others go by the last part of their key
    "batch.global_batch": "batch",
    "batch.seq_len": "sequence",
    "pipeline.virtual_stages": "virtual stages",
    "sharding.zero_stage": "ZeRO stage",
    "precision.compute": "products in",
    "precision.reduce": "sums in",
    "precision.parameters": "parameters in",
    "context.method": "context by",
}


def programs(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the groups, each with its families and their stops, in the order of the index."""
    check_keys(given, (), "programs")
    return [dict(group) for group in _groups(language())]


@cache
def _groups(spoken: str) -> tuple[Mapping[str, Any], ...]:
    found: dict[str, list[StoredProgram]] = {}
    for stored in stored_programs():
        found.setdefault(stored.group, []).append(stored)
    return tuple({"group": t(name), "families": _families(some)} for name, some in found.items())


def traits(stored: StoredProgram) -> dict[str, Any]:
    """Return what tells programs apart: run, cluster, mesh, settings, nodes."""
    named = {"run": stored.run, "cluster": stored.cluster, "mesh": stored.mesh}
    return named | dict(stored.set) | {"nodes": stored.nodes}


def _families(group: Sequence[StoredProgram]) -> list[dict[str, Any]]:
    differing = _differing(group)
    most = max(differing, key=lambda name: len(_by_value(group, name)), default="mesh")
    families = _split(list(group), slider="mesh" if "mesh" in differing else most)
    apart = _differing([family[0] for family in families])
    return [_family(family, apart) for family in families]


def _split(some: list[StoredProgram], slider: str) -> list[list[StoredProgram]]:
    """Families of programs: parts with equal values of a trait, each of FEWEST programs or more."""
    for name in _differing(some):
        parts = list(_by_value(some, name).values())
        if name != slider and all(len(part) >= FEWEST for part in parts):
            return [family for part in parts for family in _split(part, slider)]
    return [some]


def _family(some: Sequence[StoredProgram], apart: Sequence[str]) -> dict[str, Any]:
    """One family: its name, and a stop for each program."""
    first, differing = some[0], _differing(some)
    place = " on ".join(str(traits(first)[n]) for n in PLACE if n not in differing)
    rest = [_label(first, n) for n in apart if n not in (*PLACE, *differing)]
    name = ", ".join(filter(None, [place or "all", *rest]))
    return {"name": name, "stops": [_stop(stored, differing) for stored in some]}


def _stop(stored: StoredProgram, differing: Sequence[str]) -> dict[str, Any]:
    mesh = [stored.mesh] if "mesh" in differing else []
    shown = [n for n in differing if n != "mesh" and traits(stored).get(n) is not None]
    return {
        "key": stored.key,
        "label": ", ".join([*mesh, *(_label(stored, n) for n in shown)]) or stored.mesh,
        **{name: getattr(stored, name) for name in ("run", "cluster", "nodes", "mesh")},
        "figures": list(_figures(stored.cluster, stored.nodes)),
    }


@cache
def _figures(cluster: str, nodes: int) -> tuple[str, ...]:
    """The figures that a cluster has, of `what_if`."""
    place = catalog.load(cluster, nodes=nodes)
    return tuple(name for name in FIGURES if has_figure(place, name))


def _label(stored: StoredProgram, name: str) -> str:
    """`batch 128`, `8 nodes`, `llama3-8b`, `interleaved`."""
    value = traits(stored).get(name)
    if name in PLACE:
        return str(value)
    if name == "nodes":
        return t("1 node") if value == 1 else t("{n} nodes", n=value)
    short = SHORT.get(name, name.rpartition(".")[2].replace("_", " "))
    return "" if value is None else f"{short} {value}"


def _differing(some: Sequence[StoredProgram]) -> list[str]:
    """Traits that are not the same for all: run and cluster first, nodes last."""
    names = dict.fromkeys(name for stored in some for name in traits(stored) if name != "nodes")
    return [name for name in (*names, "nodes") if len(_by_value(some, name)) > 1]


def _by_value(some: Sequence[StoredProgram], name: str) -> dict[str, list[StoredProgram]]:
    """Programs by the value of a trait, as a text: some values cannot be hashed."""
    parts: dict[str, list[StoredProgram]] = {}
    for stored in some:
        value = json.dumps(traits(stored).get(name), sort_keys=True)
        parts.setdefault(value, []).append(stored)
    return parts
