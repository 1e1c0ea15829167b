"""Published tables of kernels as array kernels: one for each chip, software, kind and format.

    kernels/kernels_gemm.csv.gz        products           aiconfigurator, SimuMax
    kernels/kernels_attention.csv.gz   fused attention    aiconfigurator, cudnn-frontend, SimuMax
    kernels/kernels_experts.csv.gz     grouped products   SimuMax
    kernels/kernels_memory.csv.gz      casts to fp8       aiconfigurator
    grouped.csv                        grouped products   tokamax: gradients of weights; the other
                                       records have programs without work (`fit_grouped`)
    kernels/intranode_pcie.csv         collectives        aiconfigurator

Each kernel is what `sc.kernel` prices for these sizes: `work_of` and `priced_kernel` make both.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments.published.csv_rows import rows_of
from scaling.meshes.accelerator import Accelerator
from scaling.program.ir import Kernel
from scaling.program.ops import attention_flops, visible_share
from scaling.questions.roofline import KernelTarget, priced_kernel
from scaling.questions.workloads import KernelFormats, work_of

FOLDER = Path(__file__).parent
LARGE = 30e9  # FLOPs from which a kernel is large (the table)
FEW_ROWS = 256  # rows of a product up to which its weights' bytes decide
US = 1e-6
# Casts of activations that a source's product includes and did not measure apart: bytes that are
# read and written for each value of the left operand, bf16 in and fp8 or fp4 out.
CASTS = {"fp8_block": 2 + 1, "nvfp4": 2 + 0.5}
Row = Mapping[str, str]
Numbers = Mapping[str, Any]  # of a row, or arrays [rows]


@dataclass(frozen=True)
class Key:
    """What the rows of one array kernel have in common."""

    kind: str  # of the score's table: "product bf16, large"
    chip: str
    software: str
    question: str  # kind of `sc.kernel`
    dtype: str
    options: tuple[tuple[str, object], ...] = ()  # further arguments of `sc.kernel`


@dataclass(frozen=True, eq=False)
class Rows:
    """Kernels of one key, with their measured times."""

    key: Key
    sizes: Numbers  # by symbols of `sc.kernel`, [rows]
    seconds: np.ndarray  # [rows]
    more: Numbers = field(default_factory=dict)  # what `sc.kernel` cannot be asked: below

    def kernel(self, chip: Accelerator) -> Kernel:
        """The rows as one array kernel."""
        options = dict(self.key.options)
        formats = KernelFormats(self.key.dtype, results=options.get("output"))  # type: ignore[arg-type]
        flags = bool(options.get("causal")), bool(options.get("backward"))
        work = work_of(self.key.question, self.sizes, formats, *flags)
        kernel = priced_kernel(work, KernelTarget(chip, self.key.dtype))
        return _narrowed(kernel, self, flags[1]) if self.more else kernel

    @property
    def cast(self) -> np.ndarray | float:
        """Bytes that casts beside the kernels move."""
        width = CASTS.get(self.key.software.rpartition(" ")[2], 0)
        return width * self.sizes["m"] * self.sizes["k"] if width else 0.0


def _narrowed(kernel: Kernel, rows: Rows, backward: bool) -> Kernel:
    """Attention whose values have another head dimension, or whose queries see a window of keys."""
    head, value_head = rows.sizes["H"], rows.more["value_head"]
    flops = attention_flops(1.0, head, value_head, backward) / attention_flops(
        1.0, head, head, backward
    )
    whole = 1.0  # scores of all keys over those that a causal mask leaves
    if dict(rows.key.options).get("causal"):
        whole = rows.sizes["S"] / (rows.sizes["S"] - rows.sizes["T"] / 2)
    return replace(
        kernel,
        flops=kernel.flops * flops * whole,
        transcendentals=kernel.transcendentals * whole,
        bytes=kernel.bytes * (head + value_head) / (2 * head),
        visible=rows.more["seen"] / whole,
        value_dim=value_head,
    )


@cache
def tables() -> tuple[Rows, ...]:
    """All rows of all tables, by key."""
    makers: tuple[tuple[str, Callable[[Row], tuple[Key, Numbers, Numbers]]], ...] = (
        ("kernels_gemm", _product),
        ("kernels_attention", _attention),
        ("kernels_memory", _cast),
        ("kernels_experts", _experts),
    )
    found: list[Rows] = []
    for name, make in makers:
        rows = (row for row in read(f"{name}.csv.gz") if row.get("kind") != "layer")
        found += _grouped((make(row), _seconds(row)) for row in rows)
    rows = (row for row in read("../grouped.csv") if row["product"] == "weights' gradient")
    found += _grouped((_recorded(row), float(row["milliseconds"]) * 1e-3) for row in rows)
    return tuple(found)


def read(name: str) -> list[dict[str, str]]:
    """The rows of a table in kernels/."""
    return rows_of(FOLDER / "kernels" / name)


def _seconds(row: Row) -> float:
    return (float(row["time_us"]) - float(row.get("cast_us") or 0)) * US


def _grouped(rows: Iterable[tuple[tuple[Key, Numbers, Numbers], float]]) -> list[Rows]:
    by_key: dict[tuple, list[tuple[Numbers, Numbers, float]]] = defaultdict(list)
    for (key, sizes, more), seconds in rows:
        by_key[key, tuple(sizes), bool(more)].append((sizes, more, seconds))
    found = []
    for (key, names, _), own in by_key.items():
        sizes = {name: np.array([one[0][name] for one in own]) for name in names}
        more = {name: np.array([one[1][name] for one in own]) for name in own[0][1]}
        found.append(Rows(key, sizes, np.array([one[2] for one in own]), more))
    return found


def _floats(row: Row, **names: str) -> dict[str, float]:
    return {symbol: float(row[name]) for symbol, name in names.items()}


def _product(row: Row) -> tuple[Key, Numbers, Numbers]:
    sizes = _floats(row, m="m", n="n", k="k")
    size = "large" if 2 * sizes["m"] * sizes["n"] * sizes["k"] >= LARGE else "small"
    size = size if sizes["m"] > FEW_ROWS else f"m <= {FEW_ROWS}"
    source = row["gemm_dtype"]
    format_ = f"{row['dtype']} in blocks" if source == "fp8_block" else row["dtype"]
    software = f"{row['software']} {source}"
    options = () if row["dtype"] == "bf16" else (("output", "bf16"),)
    kind = f"product {format_}, {size}"
    return Key(kind, row["gpu"], software, "matmul", row["dtype"], options), sizes, {}


def _attention(row: Row) -> tuple[Key, Numbers, Numbers]:
    names = {"B": "batch", "N": "heads", "T": "queries", "S": "keys", "H": "head_dim"}
    sizes = _floats(row, **names, K="kv_heads")
    causal, backward = row["causal"] == "True", row["direction"] == "bwd"
    window, value_head = int(row["window"]), float(row["head_dim_v"])
    T, S = sizes["T"], sizes["S"]
    mask = S - T / 2 if causal else S  # keys of a query, as sc.kernel counts them
    seen = S * visible_share(int(S), window) / mask if window else 1.0
    more = {} if not window and value_head == sizes["H"] else {"value_head": value_head}
    if more:
        more["seen"] = seen
    per_score = attention_flops(1.0, sizes["H"], value_head, backward)
    flops = per_score * sizes["B"] * sizes["N"] * T * mask * seen
    format_ = "fp8" if row["dtype"] == "mxfp8" else row["dtype"]
    direction = "backward" if backward else "forward"
    size = f"{direction}, {'large' if flops >= LARGE else 'small'}"
    kind = f"attention {format_}, {'decode' if row['setting'] == 'decode' else size}"
    mixed = " mxfp8" * (row["dtype"] == "mxfp8")
    options = (("causal", causal), ("backward", backward))
    key = Key(kind, row["gpu"], row["software"] + mixed, "attention", format_, options)
    return key, sizes, more


def _experts(row: Row) -> tuple[Key, Numbers, Numbers]:
    """The sizes of a row are those of the forward product; gradients of weights are in fp32."""
    g, m, n, k = (float(row[name]) for name in ("groups", "m", "n", "k"))
    what, _, stage = row["software"].rpartition(" ")
    name, dims, options = {
        "fwd": ("forward", (g, m, n, k), ()),
        "bwd_grad_act": ("gradient of inputs", (g, m, k, n), ()),
        "bwd_grad_w": ("gradient of weights", (g, k, n, m), (("output", "fp32"),)),
    }[stage]
    key = Key(f"grouped {row['dtype']}, {name}", row["gpu"], what, "grouped", row["dtype"], options)
    return key, dict(zip("gmnk", dims, strict=True)), {}


def _recorded(row: Row) -> tuple[Key, Numbers, Numbers]:
    sizes = _floats(row, g="groups", m="m", n="n", k="k")
    kind = "grouped bf16, gradient of weights"
    return Key(kind, row["chip"], f"tokamax {row['kernel']}", "grouped", "bf16"), sizes, {}


def _cast(row: Row) -> tuple[Key, Numbers, Numbers]:
    return Key(row["op"], row["gpu"], row["impl"], "read", "bf16"), _floats(row, V="bytes"), {}
