"""Hold prices of library calls against published times: transforms, sorts, factorisations ...

    python -m experiments.published.score_library

Each row of library_timings.csv becomes the program that jax would compile, which is read and priced
on the row's chip. A chip that the catalogue does not have is a catalogued one of a like generation
with the row's own figures (`OTHERS`); of one that its source does not state, an A100 40 GB. Rows to
which the constants of `scaling.hlo.library_work` and `scaling.hlo.custom_calls` were fitted are
apart from the rest of their tables, and from whole systems that no constant has seen.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from experiments.published.csv_rows import rows_of
from scaling.hlo.reader import read_program
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.profiles.io import profile_of
from scaling.report.formatting import columns
from scaling.simulate.step import price
from scaling.simulate.uncertainty import step_range

FILE = Path(__file__).parent / "library_timings.csv"
UNSTATED = "a100-sxm-40g"
HOME = "dgx-a100"  # a cluster whose nodes hold the chip
MB, GB = 2**20, 1e9
# Chips beside the catalogue, by NVIDIA's data sheets: base, bandwidth, L2, fp32, fp64, cores
OTHERS: Mapping[str, tuple[str, float, int, float, float, int]] = {
    "rtx3060": ("rtx3090", 360 * GB, 3 * MB, 12.7e12, 0.199e12, 28),
    "rtx3080": ("rtx3090", 760 * GB, 5 * MB, 29.8e12, 0.465e12, 68),
    "rtx4080s": ("rtx4090", 736 * GB, 64 * MB, 52.2e12, 0.816e12, 80),
    "rtx5090": ("rtx4090", 1792 * GB, 96 * MB, 104.8e12, 1.64e12, 170),
    "titan-xp": ("p100-sxm", 547 * GB, 3 * MB, 12.1e12, 0.38e12, 30),
}
TARGETS = {
    **{name: f"cusolver_{name}_ffi" for name in ("geqrf", "orgqr", "potrf", "getrf", "syevd")},
    **{name: f"cusolver_{name}_ffi" for name in ("gesvd", "gesvdj", "gesvdp")},
    "trsm": "__cublas$triangularSolve",
}


@dataclass(frozen=True)
class Row:
    """One published time."""

    kind: str
    chip: str
    dtype: str
    batch: int
    m: int
    n: int
    seconds: float
    use: str  # fit, score or system
    source: str


def rows() -> list[Row]:
    """All published times, as the file has them."""
    return [
        Row(
            kind=r["kind"],
            chip=r["chip"],
            dtype=r["dtype"],
            batch=int(r["batch"]),
            m=int(r["m"]),
            n=int(r["n"]),
            seconds=float(r["ms"]) / 1e3,
            use=r["use"],
            source=r["source"],
        )
        for r in rows_of(FILE)
    ]


def text(row: Row) -> str:
    """The compiled program of one row."""
    entry = "\n".join(f"  {line}" for line in _lines(row))
    head = "HloModule m, is_scheduled=true, num_partitions=1"
    return f"{head}\n\nENTRY %main () -> () {{\n{entry}\n}}\n"


def _lines(row: Row) -> Iterator[str]:
    first, *rest = row.kind.split()
    matrix = f"{row.dtype}[{row.batch},{row.m},{row.n}]" if row.batch > 1 else ""
    matrix = matrix or f"{row.dtype}[{row.m},{row.n}]"
    if first == "fft":
        shape = f"{row.dtype}[{row.batch},{row.n}]"
        yield f"%x = {shape} parameter(0)"
        yield f"ROOT %y = {shape} fft(%x), fft_type=FFT, fft_length={{{row.n}}}"
    elif first == "cub":
        shapes = [f"{dtype}[{row.n}]" for dtype in (row.dtype, *rest)]
        yield from (f"%x{i} = {shape} parameter({i})" for i, shape in enumerate(shapes))
        names = ", ".join(f"%x{i}" for i in range(len(shapes)))
        result = f"({', '.join([*shapes, 'u8[1024]'])})"
        target = "__cub$DeviceRadixSort" + ("Pairs" if rest else "Keys")
        yield f'ROOT %y = {result} custom-call({names}), custom_call_target="{target}"'
    elif first == "topk":
        shape, found = f"{row.dtype}[{row.batch},{row.n}]", f"[{row.batch},{rest[0]}]"
        yield f"%x = {shape} parameter(0)"
        result = f"({row.dtype}{found}, s32{found})"
        yield f'ROOT %y = {result} custom-call(%x), custom_call_target="__gpu$TopK"'
    elif first == "conv":
        channels, height, width, side, features, stride = map(int, rest)
        image = f"{row.dtype}[{row.batch},{height},{width},{channels}]"
        out = f"{row.dtype}[{row.batch},{height // stride},{width // stride},{channels}]"
        yield f"%x = {image} parameter(0)"
        yield f"%k = {row.dtype}[{channels},{side},{side},{features}] parameter(1)"
        window = f"window={{size={side}x{side}}}, dim_labels=b01f_o01i->b01f"
        groups = f"feature_group_count={channels // features}"
        call = 'custom_call_target="__cudnn$convForward"'
        yield f"ROOT %y = ({out}, u8[0]) custom-call(%x, %k), {window}, {groups}, {call}"
    else:
        is_one = first == "trsm"  # of a few right-hand sides
        square = f"{row.dtype}[{row.m},{row.m}]" if is_one else matrix
        yield f"%x = {square} parameter(0)"
        yield f"%b = {matrix} parameter(1)"
        for i, name in enumerate(first.split("+")):
            times, target = (2, TARGETS["trsm"]) if name == "2trsm" else (1, TARGETS.get(name, ""))
            config = "{}"
            if name == "syevj":
                target, config = TARGETS["syevd"], "{algorithm = 2 : ui8}"
            if name.startswith("gesvd"):
                config = "{compute_uv = true, full_matrices = false}"
            for j in range(times):
                call = f'custom_call_target="{target}", backend_config={config}'
                yield f"%y{i}{j} = {matrix} custom-call(%x, {'%b' if is_one else '%x'}), {call}"
        yield "ROOT %r = () tuple()"


@cache
def cluster(chip: str) -> Cluster:
    """A node with the chip."""
    home = catalog.load(HOME)
    if chip not in OTHERS:
        return replace(home, accelerator=catalog.accelerator(chip or UNSTATED))
    base, bandwidth, cache_size, fp32, fp64, cores = OTHERS[chip]
    made = catalog.accelerator(base)
    peaks = {**made.peaks, "fp32": fp32, "fp64": fp64}
    own = replace(
        made, name=chip, peaks=peaks, memory_bandwidth=bandwidth, l2_cache=cache_size, cores=cores
    )
    return replace(home, accelerator=own)


def predicted(row: Row) -> tuple[float, float, float]:
    """Seconds of a row by our price, and at the ends of its range."""
    place = cluster(row.chip)
    program = read_program(text(row), {"data": 1}, row.kind)
    made = price(program, place, profile_of(place.accelerator))
    low, high = step_range(made)
    return float(made.timeline.total), float(low), float(high)


def score() -> str:
    """A table: kind, use, rows, median and worst error, share in the range, its mean width."""
    found = defaultdict(list)
    for row in rows():
        time, low, high = predicted(row)
        inside = low <= row.seconds <= high
        kind = {"conv": "convolution in groups", "cub": "sort"}.get(row.kind.split()[0], row.kind)
        found[kind, row.use].append((np.log(row.seconds / time), inside, np.log(high / low)))
    table = [("call", "rows", "n", "median", "worst", "in range", "high / low")]
    for (kind, use), each in found.items():
        errors, held, width = map(np.array, zip(*each, strict=True))
        middle, worst = np.exp(np.median(abs(errors))), np.exp(errors[np.argmax(abs(errors))])
        table.append(
            (kind, use, str(len(each)), f"x{middle:.2f}", f"x{worst:.2f}", f"{np.mean(held):.0%}",
             f"x{np.exp(np.mean(width)):.1f}")
        )  # fmt: skip
    return "\n".join(columns(table, left=(0, 1)))


if __name__ == "__main__":
    print(score())
