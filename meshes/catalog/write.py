"""A cluster as the text of a catalogue file, for users to complete and for `load` to read.

cluster_from(tomllib.loads(cluster_toml(cluster)), cluster.accelerator, "mine") == cluster, but for
the addresses of sources, which figures do not carry.
"""

import json
from collections.abc import Iterator

from meshes.cluster import Cluster, Fabric, Joint
from meshes.figures import Figure
from meshes.torus import Torus


def cluster_toml(cluster: Cluster, comment: str = "") -> str:
    """The file of one host of `cluster`; `comment` is put before it."""
    keys: dict[tuple[str, str], str] = {}
    layout = _key(cluster.layout, keys)
    body = [line for part in _body(cluster, keys) for line in part]
    head = [f"# {line}".rstrip() for line in comment.splitlines()]
    head += [f"{name} = {_text(value)}" for name, value in _top(cluster).items()]
    head.append(f"layout_source = {_text(layout)}")
    if cluster.domain_nodes > 1 and cluster.torus is None:
        nodes = Figure(cluster.domain_nodes, cluster.layout.source, cluster.layout.date)
        head.append(f"domain_nodes = {_figure(nodes, keys)}")
    sources = [
        line
        for (title, date), key in keys.items()
        for line in (f"[sources.{key}]", f"title = {_text(title)}", f"date = {_text(date)}")
    ]
    return "\n".join([*head, "", *sources, "", *body]).rstrip() + "\n"


def _top(cluster: Cluster) -> dict[str, str | bool]:
    """Keys before the first table; those with their usual value are left out."""
    flags = {
        "peer_access": (cluster.peer_access, True),
        "virtual_devices": (cluster.virtual_devices, False),
        "switch_reduction": (cluster.switch_reduction, False),
    }
    names: dict[str, str | bool] = {
        "name": cluster.name,
        "title": cluster.title,
        "accelerator": cluster.accelerator.name,
    }
    return {**names, **{k: value for k, (value, usual) in flags.items() if value != usual}}


def _body(cluster: Cluster, keys: dict[tuple[str, str], str]) -> Iterator[list[str]]:
    yield ["[parts]", *(f"{kind} = {count}" for kind, count in cluster.parts.items()), ""]
    for joint in cluster.joints:
        yield [*_joint(joint, keys), ""]
    if cluster.torus is not None:
        yield [*_torus(cluster.torus, keys), ""]
    if cluster.fabric is not None:
        yield _fabric(cluster.fabric, keys)


def _joint(joint: Joint, keys: dict[tuple[str, str], str]) -> Iterator[str]:
    yield "[[joints]]"
    yield f"parts = {_text(list(joint.parts))}"
    yield f"kind = {_text(joint.kind)}"
    if joint.wiring != "block":
        yield f"wiring = {_text(joint.wiring)}"
    if joint.pairs:
        yield f"pairs = {_text([list(pair) for pair in joint.pairs])}"
    if joint.count > 1:
        yield f"count = {joint.count}"
    for name, figure in (("bandwidth", joint.bandwidth), ("latency", joint.latency)):
        if figure is not None:
            yield f"{name} = {_figure(figure, keys)}"


def _torus(torus: Torus, keys: dict[tuple[str, str], str]) -> Iterator[str]:
    yield "[torus]"
    for name, value in vars(torus).items():
        yield f"{name} = {_figure(value, keys) if isinstance(value, Figure) else _text(value)}"


def _fabric(fabric: Fabric, keys: dict[tuple[str, str], str]) -> list[str]:
    stated = {name: value for name, value in vars(fabric).items() if value is not None}
    return ["[fabric]"] + [
        f"{name} = {_figure(value, keys) if isinstance(value, Figure) else _text(value)}"
        for name, value in stated.items()
    ]


def _figure(figure: Figure, keys: dict[tuple[str, str], str]) -> str:
    note = f", note = {_text(figure.note)}" if figure.note else ""
    return f"{{ value = {figure.value!r}, source = {_text(_key(figure, keys))}{note} }}"


def _key(figure: Figure, keys: dict[tuple[str, str], str]) -> str:
    """The short name of a figure's source, a new one if it is new."""
    return keys.setdefault((figure.source, figure.date), f"source{len(keys) + 1}")


def _text(value: object) -> str:
    """As JSON, which writes strings, lists and truth values as TOML does, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
