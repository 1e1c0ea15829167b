"""A cluster as the text of a catalogue file, for users to complete and for `load` to read.

read_cluster(tomllib.loads(cluster_toml(cluster)), accelerator, "mine").cluster == cluster
"""

import json
from collections.abc import Iterator
from dataclasses import replace

from scaling.meshes.cluster import Cluster, Fabric, LinkSpec
from scaling.meshes.provenance import Source, SourcedValue
from scaling.meshes.torus import Torus

Keys = dict[Source, str]  # the short name of each source


def cluster_toml(cluster: Cluster, comment: str = "") -> str:
    """The file of one host of `cluster`; `comment` is put before it."""
    keys: Keys = {}
    layout = _key(cluster.layout, keys)
    body = [line for part in _body(cluster, keys) for line in part]
    head = [f"# {line}".rstrip() for line in comment.splitlines()]
    head += [f"{name} = {_text(value)}" for name, value in _top(cluster).items()]
    head.append(f"layout_source = {_text(layout)}")
    if cluster.domain_nodes > 1 and cluster.torus is None:
        nodes = replace(cluster.layout, value=cluster.domain_nodes, note="")
        head.append(f"domain_nodes = {_figure(nodes, keys)}")
    sources = [line for source, key in keys.items() for line in _source(source, key)]
    return "\n".join([*head, "", *sources, "", *body]).rstrip() + "\n"


def _top(cluster: Cluster) -> dict[str, str | bool]:
    """Keys before the first table; those with their usual value are left out."""
    flags: dict[str, tuple[str | bool, str | bool]] = {
        "peer_access": (cluster.peer_access, True),
        "virtual_devices": (cluster.virtual_devices, False),
        "has_nvls": (cluster.has_nvls, False),
        "cpu": (cluster.cpu, ""),
    }
    names: dict[str, str | bool] = {
        "name": cluster.name,
        "title": cluster.title,
        "accelerator": cluster.accelerator.name,
    }
    return {**names, **{k: value for k, (value, usual) in flags.items() if value != usual}}


def _source(source: Source, key: str) -> Iterator[str]:
    """Its table; keys with their usual value are left out."""
    yield f"[sources.{key}]"
    for name, value in vars(source).items():
        if name in ("title", "date") or value != getattr(Source, name):
            yield f"{name} = {_text(value)}"


def _body(cluster: Cluster, keys: Keys) -> Iterator[list[str]]:
    yield ["[parts]", *(f"{kind} = {count}" for kind, count in cluster.parts.items()), ""]
    for link in cluster.links:
        yield [*_link(link, keys), ""]
    if cluster.torus is not None:
        yield [*_torus(cluster.torus, keys), ""]
    if cluster.fabric is not None:
        yield _fabric(cluster.fabric, keys)


def _link(link: LinkSpec, keys: Keys) -> Iterator[str]:
    yield "[[links]]"
    yield f"parts = {_text(list(link.parts))}"
    yield f"kind = {_text(link.kind)}"
    if link.wiring != "block":
        yield f"wiring = {_text(link.wiring)}"
    if link.pairs:
        yield f"pairs = {_text([list(pair) for pair in link.pairs])}"
    if link.count > 1:
        yield f"count = {link.count}"
    for name, figure in (("bandwidth", link.bandwidth), ("latency", link.latency)):
        if figure is not None:
            yield f"{name} = {_figure(figure, keys)}"


def _torus(torus: Torus, keys: Keys) -> Iterator[str]:
    yield "[torus]"
    for name, value in vars(torus).items():
        text = _figure(value, keys) if isinstance(value, SourcedValue) else _text(value)
        yield f"{name} = {text}"


def _fabric(fabric: Fabric, keys: Keys) -> list[str]:
    stated = {name: value for name, value in vars(fabric).items() if value is not None}
    return ["[fabric]"] + [
        f"{name} = {_figure(value, keys) if isinstance(value, SourcedValue) else _text(value)}"
        for name, value in stated.items()
    ]


def _figure(figure: SourcedValue, keys: Keys) -> str:
    note = f", note = {_text(figure.note)}" if figure.note else ""
    return f"{{ value = {figure.value!r}, source = {_text(_key(figure, keys))}{note} }}"


def _key(figure: SourcedValue, keys: Keys) -> str:
    """The short name of a figure's source, a new one if it is new."""
    source = Source(figure.source, figure.date, figure.url, figure.seen)
    return keys.setdefault(source, f"source{len(keys) + 1}")


def _text(value: object) -> str:
    """As JSON, which writes strings, lists and truth values as TOML does, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
