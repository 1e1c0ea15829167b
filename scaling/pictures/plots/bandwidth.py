"""Bandwidth of a collective over its size: predicted with its range, the bound, what was measured.

bus bandwidth = bytes / time x the factor of nccl-tests, so that the rates of all kinds compare with
a link's
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scaling.meshes.units import format_size
from scaling.pictures.palette import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from scaling.pictures.plots.style import numbers_as, picture

Points = Mapping[str, Sequence[tuple[float, float]]]  # who measured -> (bytes, bytes/s)
MARKS = (
    *(("o", VERMILION), ("^", GREEN), ("D", PURPLE), ("s", BLACK)),
    *(("v", ORANGE), ("P", SKY)),
)  # told apart without colour


def plot_bandwidth(
    answers: Sequence[Any], title: str, path: Path, measured: Points | None = None
) -> None:
    """Bus bandwidth of a collective against its size, and the bound.

    Args:
        answers: `scaling.simulate.collective.CollectivePrice`s of one collective, by size.
        title: above the picture.
        path: of the picture; its suffix says the format.
        measured: points to draw beside, by who measured them.

    Raises:
        InputError: a suffix that is not of a picture, or a file that cannot be written.
    """
    with picture(path) as axes:
        sizes = [a.bytes for a in answers]
        at = lambda seconds: [a.bus_bandwidth * a.time / getattr(a, seconds) / 1e9 for a in answers]
        axes.fill_between(sizes, at("time_high"), at("time_low"), color=BLUE, alpha=0.2, lw=0)
        axes.plot(sizes, at("time"), "." if len(sizes) == 1 else "-", color=BLUE, label="predicted")
        axes.plot(sizes, at("lower_bound"), "--", color=BLACK, lw=1,
                  label="no latency, full bandwidth")  # fmt: skip
        for (who, points), (mark, colour) in zip((measured or {}).items(), MARKS, strict=False):
            known, rates = zip(*points, strict=True)
            axes.plot(known, [r / 1e9 for r in rates], mark, color=colour, mfc="none", label=who)
        axes.set(xlabel="size", ylabel="bus bandwidth (GB/s)", title=title)
        axes.set_xscale("log", base=2)
        numbers_as(axes.xaxis, format_size)
        axes.set_ylim(bottom=0)
        axes.grid()
        axes.figure.legend(loc="outside lower center", ncols=2)
