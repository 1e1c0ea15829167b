"""Priced collectives against published ones."""

import re
from dataclasses import replace

import scaling as sc
from experiments.published.csv_rows import rows_of
from experiments.published.training import FOLDER
from scaling.meshes.units import format_rate, format_size
from scaling.pictures.axes import Frame, Scale, log_scale
from scaling.pictures.bars import dots
from scaling.pictures.chart import Series, chart
from scaling.pictures.legend import LOOKS, Look
from scaling.pictures.palette import BLUE, VERMILION
from scaling.pictures.shapes import Picture

LEFT_OUT = FOLDER.parent / "results" / "2026-11-22-left-out" / "README.md"
# A line of its second table: system, points, median, bias, in range, rule of thumb
SYSTEM = re.compile(r"^(\S.*?)\s+(\d+)\s+([\d.]+)%\s+([+-][\d.]+)%\s+(\d+)%\s+([\d.]+)%$", re.M)
MOST = 110.0  # percent; RTX 3090's 315 lies beyond
# All-reduces over two H100 nodes, by GPUs of each node
NODES = {
    2: "DGX H100 2 GPUs on each of 2 nodes",
    4: "H100 4 GPUs on each of 2 nodes (alpha-test-16way)",
    8: "Dell XE9680 HGX H100 x2",
}
SIZES = [1 << i for i in range(16, 34)]  # bytes


def systems() -> Picture:
    """The error of every system that was left out of the fit, beside the rule of thumb's."""
    table = LEFT_OUT.read_text(encoding="utf-8").split("system  ")[1]
    rows = sorted(SYSTEM.findall(table), key=lambda row: -float(row[2]))
    looks = {"fitted without the system": Look(BLUE, "o"), "rule of thumb": Look(VERMILION, "x")}
    errors = {
        f"{r[0]} ({r[1]})": dict(zip(looks, map(float, (r[2], r[5])), strict=True)) for r in rows
    }
    scale = Scale(0, MOST, "median error of the system's points, %")
    title = "Collectives of systems that were left out of the fit"
    return dots(errors, looks, scale, title=title, row=16, width=720)


def nodes() -> Picture:
    """All-reduces over two nodes of H100 with 2, 4 and 8 GPUs of each."""
    series: dict[str, Series] = {}
    for (gpus, machine), look in zip(NODES.items(), LOOKS, strict=False):
        points = [point for point in _points(machine) if point[0] >= SIZES[0]]
        series[machine] = Series(replace(look, hollow=True), points)
        priced = [(size, _price(gpus, size)) for size in SIZES]
        series[f"priced, {gpus} of each node"] = Series(Look(look.colour, "", ""), priced)
    most = max(rate for one in series.values() for _, rate in one.points)
    x = log_scale(
        (size for one in series.values() for size, _ in one.points), "size", format_size, base=2
    )
    y = Scale(0, 1.05 * most, "bus bandwidth", format_rate)
    return chart("All-reduce over two nodes of H100", Frame(x, y), series)


def _points(machine: str) -> list[tuple[float, float]]:
    """Bytes and bus bandwidth (bytes/s) of the machine's all-reduces."""
    found = []
    for name in ("collectives.csv", "systems.csv"):
        for row in rows_of(FOLDER / name):
            if row["machine"] == machine and row["kind"] == "all-reduce":
                size, ranks = float(row["bytes"]), int(row["ranks"])
                factor = 2 * (ranks - 1) / ranks
                found.append((size, factor * size / float(row["time_us"]) * 1e6))
    return sorted(found)


def _price(gpus: int, size: int) -> float:
    """Bus bandwidth (bytes/s) over two nodes with so many GPUs of each."""
    group = ",".join(str(node * 8 + gpu) for node in range(2) for gpu in range(gpus))
    price = sc.price_collective("all-reduce", size, cluster="dgx-h100", nodes=2, devices=group)
    return price.bus_bandwidth
