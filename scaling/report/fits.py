"""Fits in words: those of a calibration in a table, and the constants behind one collective.

    NVLink of a chip: alpha 4.31 us a call; 7 hops x 0.803 us = 0.6 us (of the links: ...) + 0.203
    us beyond; efficiency 79.4% of 450 GB/s (of the links: ...); fill and drain 0.479 of 7
    transfers; knee 1.35, its end 0.328, without units
      calibrated: fitted on ...; 114 points, mean error 18.7% on points left out

`scaling.profiles.profile.LinkFit` says what each constant is.
"""

from collections.abc import Iterator, Sequence

from scaling.collectives.algorithms import bus_factor
from scaling.collectives.candidates import LoadedLevel
from scaling.collectives.measured import measured_line
from scaling.meshes.bandwidths import MeasuredCall
from scaling.meshes.cluster import Cluster
from scaling.meshes.levels import NetworkLevel
from scaling.meshes.units import format_rate, format_time, percent
from scaling.profiles.profile import Profile
from scaling.program.ir import Collective
from scaling.report.formatting import evidence_words, table_lines
from scaling.simulate.step import Priced, device_groups

HEAD = ("fit", "samples", "median error", "mean", "worst", "left out (mean)")


def table(profile: Profile) -> str:
    """Return one line per fit; the last column is the mean error on samples left out of the fit."""
    fits = [(f"matmul {fit.dtype}", fit.evidence) for fit in profile.matmul]
    fits += [("memory", profile.memory.evidence), ("vector units", profile.vector.evidence)]
    fits += [(f"attention {fit.direction}", fit.evidence) for fit in profile.attention]
    fits += [
        (f"{fit.kind} x{fit.ranks} in {fit.groups}", fit.evidence) for fit in profile.collectives
    ]
    for name, fit in (("calling a program", profile.dispatch), ("whole steps", profile.step)):
        fits += [(name, fit.evidence)] if fit is not None else []
    rows = []
    for name, e in fits:
        errors = (e.median_error, e.mean_error, e.max_error, e.held_out_error)
        cells = ("-" if error is None else f"{error:.1%}" for error in errors)
        rows.append((name, f"{e.samples}", *cells))
    return "\n".join([f"{profile.machine}, {profile.date}", *table_lines(HEAD, rows)])


def bandwidth_table(calls: Sequence[MeasuredCall]) -> list[str]:
    """Bus bandwidth of each kind's largest call, a row for each number of ranks."""
    kinds = list(dict.fromkeys(call.collective for call in calls))
    largest = {(call.collective, call.ranks, call.nodes): call for call in calls}  # the last one
    rate = lambda call: format_rate(
        call.bytes / call.seconds * bus_factor(call.collective, call.ranks)
    )
    rows = [
        (f"{ranks} on {nodes}", *(rate(largest[kind, ranks, nodes]) for kind in kinds))
        for ranks, nodes in dict.fromkeys((call.ranks, call.nodes) for call in calls)
    ]
    return table_lines(("ranks on nodes", *kinds), rows)


def link_constants(step: Collective, priced: Priced) -> Iterator[str]:
    """Two lines for each level of links that the collective loads, or for its measured line."""
    cost = priced.collectives[step.name]
    if cost.chosen:
        called = set[str]()
        for one in cost.chosen.loaded:
            link, fit = one.level.link, one.figures  # all its levels have one alpha together
            alpha = "" if link in called else f"alpha {format_time(fit.alpha)} a call; "
            called.add(link)
            yield f"{one.level.name}: {alpha}{_fitted(one, priced.cluster)}"
            yield f"  {evidence_words(fit.evidence)}"
    elif cost.algorithm == "measured":
        groups = device_groups(step, priced.program, priced.cluster)
        line = measured_line(step.kind, groups, priced.profile).fit
        cache = ""
        if line.cache_bandwidth is not None:
            cache = f", the first {line.cache:,.0f} bytes at {format_rate(line.cache_bandwidth)}"
        where = f"{line.groups} x {line.ranks} devices"
        rate = format_rate(line.bandwidth)
        yield f"{where}: alpha {format_time(line.alpha)} a call, {rate}{cache}"
        yield f"  {evidence_words(line.evidence)}"


def _fitted(one: LoadedLevel, cluster: Cluster) -> str:
    """The constants of one level but alpha; those that are zero are left out."""
    level, load, fit = one.level, one.load, one.figures
    each = fit.latency_factor * level.hop_latency + fit.hop_overhead
    hops, found = one.link_hops, []
    if hops:
        factor = "" if fit.latency_factor == 1 else f"{fit.latency_factor:g} x "
        beside = " beside the bytes" * (load.torus_hops is not None)
        hop = f"{format_time(level.hop_latency)}{_sources('latency', level, cluster)}"
        wire = f"{factor}{hop}{beside}"
        over = f" + {format_time(fit.hop_overhead)} beyond" if fit.hop_overhead else ""
        found.append(f"{hops:g} hop{'s' * (hops != 1)} x {format_time(each)} = {wire}{over}")
    if fit.member_overhead and load.units > 1:
        found.append(f"{load.units - 1} other members x {format_time(fit.member_overhead)}")
    rate = f"{format_rate(level.bandwidth)}{_sources('bandwidth', level, cluster)}"
    found.append(f"efficiency {percent(fit.efficiency)} of {rate}")
    if fit.fill_drain and load.serial_steps:
        found.append(f"fill and drain {fit.fill_drain:.3g} of {load.serial_steps} transfers")
    if fit.knee:
        found.append(f"knee {fit.knee:.3g}, its end {fit.knee_end:.3g}, without units")
    return "; ".join(found)


def _sources(name: str, level: NetworkLevel, cluster: Cluster) -> str:
    """` (of the links: ...)`: sources of a level's "bandwidth" or "latency", each once; or ""."""
    links = [j for j in cluster.links if j.total_bandwidth == level.bandwidth]
    if level.link == "network" and name == "latency":  # of a hop from chip to chip
        links = [j for j in cluster.links if j.kind != "nvlink"]
    elif level.link == "network":
        links = [j for j in cluster.links if j.kind == "network"]
    figures = [getattr(link, name) for link in links]
    if level.grid is not None and cluster.torus is not None:
        torus = cluster.torus
        figures = [torus.hop_latency if name == "latency" else torus.bandwidth]
    found = dict.fromkeys(each.source for each in figures if each is not None)
    return f" (of the links: {', '.join(found)})" if found else ""
