"""Whole layers of experts in published tables, priced by the kernels of a step.

    python -m experiments.published.experts_layers

A layer of `kernels/kernels_experts.csv.gz` (aiconfigurator: TensorRT-LLM, vLLM, SGLang) is routing,
both products of all experts with the activation between them, and the sum of each token's results.
It is priced as

    products      grouped, of the experts that have rows, each with the mean number of rows
    streams       rows to their experts, the activation, results back and their sum
    routing       a softmax and a sort of the choices: the router's float32 scores, read and written

Nothing is fitted here. Fused kernels do not write the rows that a product gathers as it loads; here
all do. A load by a power law is priced as an even one.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from experiments.published.kernel_tables import Row, read
from scaling.meshes import catalog
from scaling.meshes.accelerator import Accelerator
from scaling.models.accounting.matrices import BYTES
from scaling.profiles.io import profile_of
from scaling.profiles.profile import Profile
from scaling.program import ops
from scaling.program.ir import Kernel
from scaling.report.formatting import columns
from scaling.simulate.kernels import kernel_time

# Published layers without a gate: Nemotron's, by their hidden width of an expert or choices.
PLAIN_WIDTH, PLAIN_CHOICES = 1856, 22
RESULT, FLOAT32 = 2, 4  # bytes
FEW_ROWS = 64  # of an expert: weights' bytes decide


def layer_kernels(rows: list[Row]) -> list[Kernel]:
    """The kernels of layers that differ in their sizes, as arrays [rows]."""
    tokens, width, inner, chosen, experts, parts = (
        np.array([float(row[name]) for row in rows])
        for name in ("tokens", "hidden", "inter", "topk", "experts", "tp")
    )
    dtype = rows[0]["dtype"].removesuffix("_block")
    plain, inner = (inner == PLAIN_WIDTH) | (chosen == PLAIN_CHOICES), inner / parts
    sent, used, ups = tokens * chosen, np.minimum(experts, tokens * chosen), np.where(plain, 1, 2)
    sizes = BYTES[dtype], BYTES[dtype], RESULT
    up, down = (used, sent / used, ups * inner, width), (used, sent / used, width, inner)
    stream = lambda name, moved: Kernel(name, bytes=moved)
    return [
        stream("routing", 2 * FLOAT32 * tokens * experts),
        stream("rows", RESULT * width * (tokens + sent)),
        ops.matmul("up", up, dtype, sizes, grouped=True),
        stream("activation", RESULT * inner * sent * (ups + 1)),
        ops.matmul("down", down, dtype, sizes, grouped=True),
        stream("sum", RESULT * width * (sent + tokens)),
    ]


def layer_seconds(rows: list[Row], chip: Accelerator, profile: Profile) -> np.ndarray:
    """Predicted seconds of layers."""
    each = [kernel_time(kernel, chip, profile).time for kernel in layer_kernels(rows)]
    return np.sum(np.broadcast_arrays(*each), axis=0)


def roofline(rows: list[Row], chip: Accelerator) -> np.ndarray:
    """FLOPs at the peak or bytes at full bandwidth, the larger, of all kernels together."""
    made = layer_kernels(rows)
    moved = sum(kernel.bytes for kernel in made) / chip.required("memory_bandwidth")
    return np.maximum(moved, sum(k.flops for k in made) / chip.peak(made[2].dtype))


def rows_of_each(row: Row) -> float:
    """The mean number of rows of an expert."""
    return float(row["tokens"]) * float(row["topk"]) / float(row["experts"])


def groups() -> Iterator[tuple[tuple[str, str, str, str], list[Row]]]:
    """Chip, software, format and load, and their rows."""
    found: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
    for row in read("kernels_experts.csv.gz"):
        if row["kind"] == "layer":
            load = "even" if row["routing"] == "balanced" else "power law"
            found[row["gpu"], row["software"], row["dtype"], load].append(row)
    yield from sorted(found.items())


def report() -> list[str]:
    """A line per chip, software, format and load: errors of layers with few rows, and with many."""
    head = ("chip", "software", "format", "load", "n", "few rows", "bias", "many", "bias")
    cells: list[tuple[str, ...]] = [(*head, "roofline")]
    for (name, software, dtype, load), rows in groups():
        chip = catalog.accelerator(name)
        measured = np.array([float(row["time_us"]) for row in rows]) * 1e-6
        each = np.array([rows_of_each(row) for row in rows])
        error, naive = (
            layer_seconds(rows, chip, profile_of(chip)) / measured - 1,
            roofline(rows, chip) / measured - 1,
        )
        said: list[str] = []
        for chosen in (each <= FEW_ROWS, each > FEW_ROWS):
            own = error[chosen]
            said += (
                [f"{np.median(np.abs(own)):.0%}", f"{np.median(own):+.0%}"]
                if len(own)
                else ["", ""]
            )
        short = software.split(" ", 2)[-1].removeprefix("vllm_unquantizedfusedmoe_")
        more = f"{np.median(np.abs(naive)):.0%}"
        cells.append(
            (name, f"{software.split()[0]} {short}"[:44], dtype, load, str(len(rows)), *said, more)
        )
    return list(columns(cells, left=(0, 1, 2, 3)))


if __name__ == "__main__":
    print("\n".join(report()))
