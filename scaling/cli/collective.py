"""`scaling collective`: prices, pictures and the tables of one collective at several sizes."""

import json as json_text
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.meshes.errors import InputError, check_keys

if TYPE_CHECKING:
    from scaling.simulate.collective import CollectivePrice

DEFAULT_SIZE = "1GiB"
MOST_MEMBERS = 8  # of a ring that is drawn: 14 frames of 64 squares


def collective(
    call: "partial[Any]",
    *,
    bytes: str | None = None,
    sweep: str | None = None,
    dtype: str | None = None,
    plot: tuple[str, ...] = (),
    switches: bool = False,
    json: bool = False,
) -> int:
    """Price every size, print and plot.

    Args:
        bytes: size as nccl-tests counts it, or several: 65536,1MiB,1GiB; None: 1GiB.
        sweep: FIRST:LAST, every power of two between: 1KiB:8GiB.
        dtype: format of the numbers; sizes are in bytes, so it only stands in the heading.
        plot: FILE (.svg or .png): bandwidth over size, with the bound and what others measured;
            ring=FILE: the steps of the collective around a ring.
        switches: also print the bytes over the busiest links of every level, and through its
            switches.
        json: print one JSON document (a list for several sizes).
    """
    from scaling.api.output_paths import check_outputs, picture_paths
    from scaling.meshes import catalog
    from scaling.meshes.units import parse_sizes, parse_sweep
    from scaling.report.cluster import numbering
    from scaling.report.collective import heading, level_lines, page, switch_lines

    asked = call.keywords
    kind = asked["kind"]
    pictures = picture_paths(plot, ("bandwidth", "ring"), default="bandwidth")
    check_outputs({f"--plot {kind}": path for path in pictures.values()})
    if "ring" in pictures:
        from scaling.pictures.ring import KINDS

        check_keys([kind], KINDS, "--plot ring", "collective")
    if bytes is not None and sweep is not None:
        raise InputError(f"--bytes {bytes} and --sweep {sweep}: give one of them")
    sizes = (
        parse_sweep(sweep)
        if sweep is not None
        else parse_sizes(DEFAULT_SIZE if bytes is None else bytes)
    )
    first = call(bytes=sizes[0])
    prices, cluster = [first, *map(first.at, sizes[1:])], first.cluster
    if asked["cluster"].endswith(".toml"):
        for finding in catalog.check(asked["cluster"]):
            print(finding, file=sys.stderr)
    if "bandwidth" in pictures:
        from scaling.pictures.curves import bandwidth
        from scaling.pictures.files import write_picture

        drawn = bandwidth(prices, heading(prices, cluster, dtype), _measured(asked, prices))
        write_picture(drawn, pictures["bandwidth"])
    if "ring" in pictures:
        _plot_ring(kind, first.ranks, pictures["ring"])
    if json:
        documents = [price.to_dict() for price in prices]
        several = sweep is not None or "," in (bytes or "")
        print(json_text.dumps(documents if several else documents[0]))
        return 0
    more = level_lines(prices[-1]) + switch_lines(prices[-1]) if switches else []
    more += numbering(cluster) if asked.get("devices") else []
    print(page(prices, cluster, dtype, more))
    return 0


def _measured(
    asked: Mapping[str, Any], prices: "Sequence[CollectivePrice]"
) -> dict[str, list[tuple[float, float]]]:
    """Return who measured this collective over a whole cluster of the catalogue, and points."""
    from scaling.course.ladder.measured import measured_sweep

    if any(asked.get(name) for name in ("overrides", "devices", "mesh", "active", "skew")):
        return {}
    first, last = prices[0], prices[-1]
    factor = first.bus_bandwidth * first.time / first.bytes
    points: dict[str, list[tuple[float, float]]] = {}
    sweep = measured_sweep(asked["kind"], first.cluster.name, first.ranks, first.cluster.nodes)
    for size, one in sweep.items():
        if first.bytes <= size <= last.bytes:
            point = size, factor * size / one.seconds
            points.setdefault(f"measured: {one.machine} ({one.date})", []).append(point)
    return points


def _plot_ring(kind: str, members: int, path: Path) -> None:
    """Draw the steps of the collective around a ring of its members."""
    from scaling.pictures.files import write_picture
    from scaling.pictures.ring import frames, ring_steps

    if not 2 <= members <= MOST_MEMBERS:
        raise InputError(
            f"--plot ring={path}: a group has {members:,} members, a ring of 2 to {MOST_MEMBERS} "
            "is drawn; choose a smaller one by --devices 0,1,2,3"
        )
    write_picture(ring_steps(frames(kind, members), f"{kind} around a ring of {members}"), path)
