"""Every collective of JAX's CPU backend on testbeds of 2 to 4 hosts, measured and predicted.

    sudo python -m experiments.testbed_sweep

Makes one testbed after the other, measures on it (`experiments.testbed_case`), removes it, and
writes raw data and a page to experiments/results/DATE-testbed. Predicted is with what gloo does
(`experiments.gloo.messages`) and one latency for each number of hosts and devices, measured with 1
KiB.
"""

import argparse
import json
import math
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import mean, median
from typing import Any

from experiments.gloo.messages import groups_over, link_bytes, payload_bound
from experiments.gloo.time import predicted_time
from experiments.gpu.machine import git_commit
from experiments.testbed_case import REPEATS, SIZES, SMALL, Point
from scaling.profiles.machine import busy, cores, cpu_model, versions
from scaling.report.formatting import columns
from scaling.testbed.build import BURST, down, up
from scaling.testbed.job import run_job
from scaling.testbed.machine import present_machine
from scaling.testbed.plan import format_bandwidth, new_testbed
from scaling.testbed.state import state_folder

SCHEMA = 1  # of results.json
HOSTS = (2, 3, 4)
DEVICES = (1, 2)  # of each host
BANDWIDTHS = ("1Gbit", "200Mbit")
LARGE = 2**20  # bytes; the goal is for what is larger
CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")  # new namespaces inherit it
GOAL = 0.10  # absolute error, mean over what is larger


@dataclass(frozen=True)
class Result:
    """A measured point beside what is predicted for it. Seconds."""

    point: Point
    bound: float  # payload over line rate
    predicted: float

    @property
    def typical(self) -> float:
        """The median of the repeats."""
        return median(self.point.seconds)

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted / self.typical - 1

    @property
    def bound_error(self) -> float:
        """bound / measured - 1; never above 0, but for the token bucket's burst."""
        return self.bound / self.typical - 1


def predict(points: Sequence[Point]) -> list[Result]:
    """All points but those that the latencies are taken from.

    A latency is the least seen on as many hosts and devices: what else runs on the machine adds to
    each of the others, by up to a factor of ten.
    """
    latency: dict[tuple[int, int], float] = {}
    for p in points:
        if p.bytes == SMALL:
            latency[_size(p)] = min(latency.get(_size(p), math.inf), *p.seconds)
    results = []
    for p in points:
        if p.bytes != SMALL:
            groups, seconds = groups_over(p.axis, p.hosts, p.devices), latency[_size(p)]
            link = link_bytes(p.kind, groups, p.devices, p.bytes)
            predicted = predicted_time(p.kind, groups, p.devices, p.bytes, p.bandwidth, seconds)
            results.append(Result(p, payload_bound(link, p.bandwidth), predicted))
    return results


def _size(point: Point) -> tuple[int, int]:
    return point.hosts, point.devices


def summary(results: Iterable[Result]) -> dict[str, float]:
    """Number and absolute errors of these results."""
    errors = [abs(r.error) for r in results]
    return {"n": len(errors), "mean": mean(errors), "median": median(errors), "worst": max(errors)}


def measure_on(
    hosts: int, devices: int, bandwidth: str, repeats: int, sizes: Sequence[int]
) -> list[Point]:
    """All points of one testbed, which is there only meanwhile."""
    machine, folder = present_machine(), state_folder()
    testbed = new_testbed("sweep", hosts, devices, bandwidth)
    up(testbed, machine, folder)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "points.json"
            words = [sys.executable, "-m", "experiments.testbed_case"]
            words += ["--hosts", str(hosts), "--devices", str(devices), "--out", str(out)]
            words += ["--bandwidth", str(testbed.bandwidth), "--repeats", str(repeats)]
            code = run_job(testbed, machine, [*words, "--sizes", *map(str, sizes)])
            if code:
                raise SystemExit(code)
            return [read_point(data) for data in json.loads(out.read_text())]
    finally:
        down(testbed, machine, folder)


def read_point(data: dict[str, Any]) -> Point:
    """From the JSON of a point."""
    return Point(**{**data, "seconds": tuple(data["seconds"])})


def tables(results: Sequence[Result]) -> list[str]:
    """Errors by kind and size, and what is above `LARGE` by kind, hosts and rate."""
    head = ("", "n", "mean error", "median", "worst", "payload bound, mean error")
    sections: list[tuple[str, Sequence[Result]]] = []
    large = [r for r in results if r.point.bytes > LARGE]
    for size in sorted({_nominal(r) for r in results}):
        near = [r for r in results if _nominal(r) == size]
        sections.append((f"{size // 2**10} KiB", near))
    sections.append(("above 1 MiB", large))
    for name, key in KEYS.items():
        for value in dict.fromkeys(key(r.point) for r in large):
            some = [r for r in large if key(r.point) == value]
            sections.append((f"above 1 MiB, {name} {value}".replace("  ", " "), some))
    return columns([head, *(_row(name, some) for name, some in sections if some)])


KEYS = {
    "": lambda p: p.kind,
    "hosts": lambda p: p.hosts,
    "devices a host": lambda p: p.devices,
    "axis": lambda p: p.axis,
    "link": lambda p: format_bandwidth(p.bandwidth),
}


def _nominal(result: Result) -> int:
    """The size that was asked for, in steps of 64 KiB; equal shares of 3 ranks are a bit less."""
    return round(result.point.bytes / min(SIZES)) * min(SIZES)


def _row(name: str, results: Sequence[Result]) -> tuple[str, ...]:
    figures = summary(results)
    bound = mean(abs(r.bound_error) for r in results)
    errors = (f"{figures[k]:.1%}" for k in ("mean", "median", "worst"))
    return (name, str(figures["n"]), *errors, f"{bound:.1%}")


def save(points: Sequence[Point], loads: Sequence[float], other: str, folder: Path) -> None:
    """Raw data and a page."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "schema": SCHEMA,
        "date": date.today().isoformat(),
        "machine": f"{cpu_model()}, {cores()} cores, {platform.system()} {platform.release()}",
        "versions": versions(),
        "commit": git_commit(),
        "other_load": other,
        "load_average": loads,  # of the last minute, before each testbed
        "burst": BURST,
        "congestion_control": CONGESTION.read_text().strip(),
        "points": [asdict(p) for p in points],
    }
    write(document, folder)


def write(document: dict[str, Any], folder: Path) -> None:
    """The files, with what is predicted today for the points of `document`."""
    results = predict([read_point(data) for data in document["points"]])
    document = document | {"above_1MiB": summary([r for r in results if r.point.bytes > LARGE])}
    (folder / "results.json").write_text(json.dumps(document) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(page(results, document), encoding="utf-8")


def page(results: Sequence[Result], document: dict[str, Any]) -> str:
    """The README of the results folder."""
    packages = ", ".join(f"{name} {found}" for name, found in document["versions"].items())
    large = document["above_1MiB"]
    worst = sorted((r for r in results if r.point.bytes > LARGE), key=lambda r: -abs(r.error))[:5]
    others = summary(
        [r for r in results if r.point.bytes > LARGE and r.point.kind != "reduce-scatter"]
    )
    lines = [
        "# Collectives across the hosts of a testbed, predicted and measured",
        "",
        f"{document['date']}, {document['machine']}, {packages}, commit {document['commit']}. "
        f"Before the start: {document['other_load'] or 'nothing else ran'}; load averages before "
        f"each testbed: {', '.join(f'{v:.1f}' for v in document['load_average'])}.",
        "",
        "Made by `sudo python -m experiments.testbed_sweep`. All hosts share this machine's cores;",
        f"TCP congestion control {document['congestion_control']}.",
        "Error: predicted / median of the repeats - 1, its absolute value averaged. Predicted with",
        "what gloo sends (`experiments/gloo/`) and a latency for each number of hosts and devices,",
        "the least measured with 1 KiB. No other figure is fitted, but the model was changed after",
        "such data had been seen: NOTES.md says how. Payload bound: the same bytes over the line",
        "rate, without headers and latency.",
        "",
        "```",
        *tables(results),
        "```",
        "",
        f"Above 1 MiB: n {large['n']}, mean {large['mean']:.1%}, median {large['median']:.1%}, "
        f"worst {large['worst']:.1%}. Goal: mean below {GOAL:.0%}: "
        f"{'reached' if large['mean'] < GOAL else 'missed'}. The five worst:",
        "",
        *(f"- {_words(r)}" for r in worst),
        "",
        "Without reduce-scatter: "
        + ", ".join(f"{k} {v:.1%}" if k != "n" else f"n {v}" for k, v in others.items())
        + ". What the errors come from: NOTES.md, where there is one.",
    ]
    return "\n".join(lines) + "\n"


def _words(result: Result) -> str:
    p = result.point
    return (
        f"{p.kind} over {p.axis}, {p.hosts} hosts x {p.devices}, {format_bandwidth(p.bandwidth)}, "
        f"{p.bytes} bytes: predicted {1e3 * result.predicted:.1f} ms, measured "
        f"{1e3 * result.typical:.1f} ms ({result.error:+.1%})"
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure, predict, save, print; or only predict anew what was measured."""
    parser = argparse.ArgumentParser(prog="python -m experiments.testbed_sweep")
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    parser.add_argument("--hosts", type=int, nargs="+", default=HOSTS)
    parser.add_argument("--devices", type=int, nargs="+", default=DEVICES)
    parser.add_argument("--bandwidths", nargs="+", default=BANDWIDTHS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--again", type=Path, help="only predict anew the points of this folder")
    args = parser.parse_args(arguments)
    if args.again:
        write(json.loads((args.again / "results.json").read_text()), args.again)
        print((args.again / "README.md").read_text())
        return
    other = busy()
    points: list[Point] = []
    loads = []
    folder = args.out / f"{date.today().isoformat()}-testbed"
    for bandwidth in args.bandwidths:
        for hosts in args.hosts:
            for devices in args.devices:
                loads.append(os.getloadavg()[0])
                points += measure_on(hosts, devices, bandwidth, args.repeats, args.sizes)
                save(points, loads, other, folder)
    print((folder / "README.md").read_text())


if __name__ == "__main__":
    main()
