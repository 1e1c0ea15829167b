"""Priced collectives against published ones."""

import csv
import re
from pathlib import Path

import scaling as sc
from experiments.published.training import FOLDER
from scaling.meshes.units import format_size
from scaling.pictures.palette import BLUE, GREEN, VERMILION
from scaling.pictures.plots import picture
from scaling.pictures.plots.style import numbers_as

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


def systems(path: Path) -> None:
    """The error of every system that was left out of the fit, beside the rule of thumb's."""
    table = LEFT_OUT.read_text(encoding="utf-8").split("system  ")[1]
    rows = sorted(SYSTEM.findall(table), key=lambda row: float(row[2]))
    with picture(path, size=(7.0, 9.0)) as axes:
        at = list(range(len(rows)))
        error = [min(MOST, float(row[2])) for row in rows]
        axes.hlines(at, 0, error, color=BLUE, lw=1)
        axes.plot(error, at, "o", color=BLUE, label="fitted without the system")
        axes.plot([float(row[5]) for row in rows], at, "x", color=VERMILION, label="rule of thumb")
        axes.set(xlabel="median error of the system's points, %", xlim=(0, MOST), yticks=at)
        axes.set_yticklabels([f"{row[0]} ({row[1]})" for row in rows], fontsize=6)
        axes.set_ylim(-1, len(rows))
        axes.grid(axis="x")
        axes.legend(loc="lower right")


def nodes(path: Path) -> None:
    """All-reduces over two nodes of H100 with 2, 4 and 8 GPUs of each."""
    with picture(path) as axes:
        marks = zip(NODES.items(), (("o", BLUE), ("^", VERMILION), ("D", GREEN)), strict=True)
        for (gpus, machine), (mark, colour) in marks:
            points = _points(machine)
            sizes, rates = [p[0] for p in points], [p[1] for p in points]
            axes.plot(sizes, rates, mark, color=colour, mfc="none", label=machine)
            priced = [_price(gpus, size) for size in SIZES]
            axes.plot(SIZES, priced, color=colour, label=f"priced, {gpus} of each node")
        axes.set(xlabel="size", ylabel="bus bandwidth (GB/s)")
        axes.set_xscale("log", base=2)
        axes.set_xlim(SIZES[0] / 2, SIZES[-1] * 4)
        numbers_as(axes.xaxis, format_size)
        axes.grid()
        axes.legend(loc="upper left")


def _points(machine: str) -> list[tuple[float, float]]:
    """Bytes and bus bandwidth in GB/s of the machine's all-reduces."""
    found = []
    for name in ("collectives.csv", "systems.csv"):
        with (FOLDER / name).open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["machine"] == machine and row["kind"] == "all-reduce":
                    size, ranks = float(row["bytes"]), int(row["ranks"])
                    factor = 2 * (ranks - 1) / ranks
                    found.append((size, factor * size / float(row["time_us"]) / 1e3))
    return sorted(found)


def _price(gpus: int, size: int) -> float:
    """Bus bandwidth in GB/s over two nodes with so many GPUs of each."""
    group = ",".join(str(node * 8 + gpu) for node in range(2) for gpu in range(gpus))
    price = sc.price_collective("all-reduce", size, cluster="dgx-h100", nodes=2, devices=group)
    return price.bus_bandwidth / 1e9
