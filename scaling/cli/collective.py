"""`scaling collective`: what one collective takes on a cluster."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from scaling.collectives.algorithms import ALGORITHMS
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.shape import AXES, parse_mesh
from scaling.meshes.units import parse_sizes, parse_sweep
from scaling.profiles.io import ideal
from scaling.profiles.profile import Profile
from scaling.program.ir import COLLECTIVE_KINDS
from scaling.report.algorithm_choice import choice_lines
from scaling.report.collective import heading, table
from scaling.simulate.collective import collective_prices, groups_of
from scaling.simulate.resolve import parsed_overrides, profile_for

DEFAULT_SIZE = "1GiB"


@dataclass(frozen=True)
class CollectiveArguments:
    """What the command line says."""

    kind: str
    cluster: str
    bytes: str | None = None
    nodes: int = 1
    mesh: str | None = None
    axis: str | None = None
    device_order: str | None = None
    algorithm: str = "auto"
    dtype: str | None = None
    sweep: str | None = None
    overrides: tuple[str, ...] = ()
    calibration: Path | None = None
    ideal: bool = False
    software: str = "any"
    plot: Path | None = None
    json: bool = False
    skew: float | None = None


def collective_command(given: CollectiveArguments) -> int:
    """Price, print; returns the exit code."""
    if given.bytes is not None and given.sweep is not None:
        raise InputError(f"--bytes {given.bytes} and --sweep {given.sweep}: give one of them")
    check_keys([given.kind], COLLECTIVE_KINDS, "collective")
    check_keys([given.algorithm], ("auto", *ALGORITHMS), "algorithm")
    sizes = _sizes(given)
    cluster = catalog.load(given.cluster, given.nodes, parsed_overrides(given.overrides))
    for line in catalog.check(given.cluster) if given.cluster.endswith(".toml") else ():
        print(line, file=sys.stderr)
    for doubt in catalog.warnings_of(given.cluster, cluster):
        print(f"warning: {doubt}", file=sys.stderr)
    order = _words(given.device_order) or AXES
    if given.device_order and not given.mesh:
        raise InputError(
            f"--device-order {given.device_order} orders the axes of a mesh: add --mesh"
        )
    mesh = parse_mesh(given.mesh, order) if given.mesh else None
    axes = _words(given.axis)
    groups = groups_of(cluster, mesh, axes)
    profile = _profile(given, cluster)
    how = (given.algorithm, given.skew)
    prices = collective_prices(given.kind, sizes, groups, cluster, profile, *how)  # type: ignore[arg-type]
    if given.plot is not None:
        from scaling.report.plots import plot_bandwidth

        plot_bandwidth(prices, heading(prices, cluster, given.dtype), given.plot)
    if given.json:
        documents = [price.to_dict() for price in prices]
        several = given.sweep is not None or "," in (given.bytes or "")
        print(json.dumps(documents if several else documents[0]))
    else:
        lines = [heading(prices, cluster, given.dtype), *table(prices)]
        print("\n".join([*lines, *choice_lines(prices)]))
    return 0


def _sizes(given: CollectiveArguments) -> list[int]:
    """Bytes of the calls; InputError where there are none."""
    if given.sweep is not None:
        return parse_sweep(given.sweep)
    return parse_sizes(DEFAULT_SIZE if given.bytes is None else given.bytes)


def _words(text: str | None) -> tuple[str, ...]:
    """Axes joined by commas."""
    return tuple(word.strip() for word in text.split(",")) if text else ()


def _profile(given: CollectiveArguments, cluster: Cluster) -> Profile:
    if given.ideal:
        return ideal()
    if cluster.virtual_devices:
        from scaling.cli.calibrate import calibrate_first

        calibrate_first(cluster, given.calibration)
    profile, doubts = profile_for(cluster, given.calibration, given.software)
    for doubt in doubts:
        print(f"warning: {doubt}", file=sys.stderr)
    return profile
