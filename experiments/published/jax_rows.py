"""Rows of `jax_gpu_runs.csv` as runs, and why some of them are none.

Where the row's program has kernels that ours does not (grouped products of QuACK, FlashAttention 4
in CuTe, a Muon on the hyperball), the nearest that the trainer has stands in: experts with
`capacity_factor` 1, cuDNN's attention, Muon.
"""

from collections import Counter
from collections.abc import Iterator

from experiments.published.training import Measured, jax_runs

CLUSTERS = {"H100 SXM 80GB": ("dgx-h100", 8), "B200": ("dgx-b200", 8), "GB200": ("gb200-nvl72", 4)}
DATA_AXES = {"data", "data(fsdp)", "fsdp", "replica"}
# Their loss goes over the vocabulary in parts; ours needs this many microbatches for its logits.
MICROBATCHES = 2
Row = dict[str, str]


def runs_of_table() -> Iterator[Measured]:
    """The rows that are runs."""
    for row in jax_runs():
        if reason(row):
            continue
        seconds = seconds_of(row["measured_step_s"])
        assert seconds is not None  # else there is a reason
        source, memory = row["framework"], (None, None)
        yield Measured(
            row["id"], source, row["source_url"], row["date"], row["gpu"], row["model"], seconds,
            *memory, "B", row["notes"], run_of(row),
        )  # fmt: skip


def reasons() -> dict[str, int]:
    """Why the others are none, with the number of rows."""
    return dict(Counter(why for row in jax_runs() if (why := reason(row))))


def reason(row: Row) -> str:
    """Why a row is not priced; "" if it is."""
    if seconds_of(row["measured_step_s"]) is None:
        return "no step time"
    if not row["global_batch"] or row["gpu"] not in CLUSTERS:
        return "batch not stated" if row["gpu"] in CLUSTERS else "no such cluster in the catalogue"
    if not all(row[key].split()[0].isdigit() for key in ("layers", "d_model", "heads") if row[key]):
        return "shape not stated"
    if not (row["layers"] and row["d_model"] and row["heads"] and row["vocab"] and row["mesh"]):
        return "shape not stated"
    if not _axes(row["mesh"]):
        return "mesh not stated, or experts exchanged by kernels of their own"
    if "latent" in row["model"] or "hero" in row["model"] or not row["kv_heads"][:1].isdigit():
        return "latent attention, latent experts or alternating windows"
    return ""


def run_of(row: Row) -> dict:
    """The run.json of a row."""
    first = lambda key: int(row[key].split()[0])
    gpus = int(row["n_gpus"])
    cluster, each = CLUSTERS[row["gpu"]]
    replicas = _axes(row["mesh"]).get("replica", 1)
    heads, width = first("heads"), first("d_model")
    model = {
        "vocab_size": first("vocab"),
        "d_model": width,
        "n_layers": first("layers"),
        "n_heads": heads,
        "n_kv_heads": first("kv_heads") if row["kv_heads"] else heads,
        "head_dim": int(row["head_dim"]),
        "d_ff": int(row["d_ff"].split()[-1]),
        "mlp": "swiglu",
        "norm": "rmsnorm",
        "positions": "rope",
    }
    experts = bool(row["moe_experts"])
    if experts:
        model["moe"] = {
            "n_experts": int(row["moe_experts"]),
            "experts_per_token": int(row["moe_topk"]),
            "d_ff_expert": int(row["d_ff_expert"]),
            "n_shared_experts": 1,
            "capacity_factor": 1.0,
        }
    remat = "none" if row["remat"].startswith("none") else "full"
    used = {"overrides": {"gpus_per_node": gpus}} if gpus < each else {}
    return {
        "name": row["id"],
        "model": model,
        "batch": {
            "global_batch": first("global_batch"),
            "seq_len": first("seq_len"),
            "microbatches": MICROBATCHES if experts else 1,
        },
        "mesh": {"data": replicas, "fsdp": gpus // replicas},
        "optimizer": "muon" if experts else "adamw",
        "remat": remat,
        "cluster": {"name": cluster, "nodes": -(-gpus // each), **used},
    }


def _axes(mesh: str) -> dict[str, int]:
    """Sizes of the axes if all are data axes, else {}."""
    parts = [part.strip().rpartition("=") for part in mesh.split(",")]
    if not all(name in DATA_AXES and size.isdigit() for name, _, size in parts):
        return {}
    return {name: int(size) for name, _, size in parts}


def seconds_of(text: str) -> float | None:
    """The number that a cell begins with; None if it begins with none."""
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None
