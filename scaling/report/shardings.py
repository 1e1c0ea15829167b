"""Every parameter's shape, spec and bytes per device, what stayed replicated, what remat keeps."""

import math
from dataclasses import dataclass
from typing import Any

import jax

from scaling.meshes.rules import Rules
from scaling.meshes.units import format_size
from scaling.models.accounting.activations import SavedRow
from scaling.models.accounting.matrices import BYTES
from scaling.models.accounting.remat import Remat
from scaling.models.execution import Execution
from scaling.models.initializers import is_matrix, is_variable
from scaling.models.zero import all_gather_params
from scaling.report.formatting import columns, table_lines
from scaling.run.optimizers import Optimizer
from scaling.training.weights.naming import leaf_names

REPLICAS = {"data"}  # copies every parameter
FLOAT32 = BYTES["fp32"]
WORTH_A_LINE = 0.01  # share of all parameter bytes from which a whole tensor is named singly


@dataclass(frozen=True)
class ParameterRow:
    """One parameter; layers are stacked along the first dimension."""

    name: str
    shape: tuple[int, ...]
    spec: str  # mesh axes of each dimension, "-" where whole
    bytes: int  # of the whole tensor
    device_bytes: int  # of one device's part
    free_axes: tuple[str, ...]  # axes that could cut it (all but REPLICAS) and do not


def rows(params: Any, rules: Rules) -> list[ParameterRow]:
    """One row per parameter of a tree of arrays or `ShapeDtypeStruct` with NamedSharding."""
    sizes, found = rules.mesh.sizes, []
    for name, leaf in zip(leaf_names(params), jax.tree.leaves(params), strict=True):
        spec = leaf.sharding.spec.partitions
        cuts = [(axes,) if isinstance(axes, str) else axes or () for axes in spec]
        cuts += [()] * (len(leaf.shape) - len(spec))
        used = REPLICAS.union(*cuts)
        free = tuple(axis for axis, n in sizes.items() if n > 1 and axis not in used)
        text = ", ".join("+".join(axes) or "-" for axes in cuts)
        found.append(ParameterRow(name, leaf.shape, text, *_sizes(leaf), free))
    return found


def table(all_rows: list[ParameterRow]) -> str:
    """The rows as aligned text with a total."""
    lines: list[tuple[str, ...]] = [("parameter", "shape", "sharded over", "bytes", "bytes/device")]
    for row in all_rows:
        shape = "x".join(map(str, row.shape))
        sizes = f"{row.bytes:,}", f"{row.device_bytes:,}"
        lines.append((row.name, shape, row.spec, *sizes))
    total = sum(row.bytes for row in all_rows), sum(row.device_bytes for row in all_rows)
    lines.append(("total", "", "", *(f"{size:,}" for size in total)))
    return "\n".join(columns(lines, left=(0, 1, 2)))


def saved_table(rows: list[SavedRow], remat: Remat) -> str:
    """Every tensor that remat keeps for the backward pass, with its bytes on one device."""
    lines: list[tuple[str, ...]] = []
    experts = len({row.layers for row in rows}) > 1
    for row in rows:
        tensor = f"{row.tensor} of {row.layers}" if experts else row.tensor
        sizes = f"{row.layer_bytes:,}", f"{row.bytes:,}"
        lines.append((tensor, row.kept_as, row.memory, *sizes))
    for memory in ("device", "host"):
        total = sum(row.bytes for row in rows if row.memory == memory)
        if total:
            lines.append((f"total in memory of the {memory}", "", "", "", f"{total:,}"))
    head = ("kept tensor", "name in remat", "memory", "bytes/layer", "bytes/device")
    title = f"remat {remat} keeps for the backward pass"
    return "\n".join([title, *table_lines(head, lines, left=(0, 1, 2))])


def state_bytes(state: Any) -> dict[str, int]:
    """Bytes of an optimiser's state, counters included: of whole arrays, and of one device's parts.

    Args:
        state: a tree of arrays or `ShapeDtypeStruct` with NamedSharding.
    """
    sizes = [_sizes(leaf) for leaf in jax.tree.leaves(state)]
    return {"bytes": sum(whole for whole, _ in sizes), "device_bytes": sum(n for _, n in sizes)}


def _sizes(leaf: Any) -> tuple[int, int]:
    shard, item = leaf.sharding.shard_shape(leaf.shape), leaf.dtype.itemsize
    return math.prod(leaf.shape) * item, math.prod(shard) * item


def state_line(kept: dict[str, int], optimizer: Optimizer) -> str:
    """`state_bytes` in words."""
    return (
        f"optimizer state ({optimizer.name}, {optimizer.state}): {kept['bytes']:,} bytes, "
        f"{kept['device_bytes']:,} bytes/device"
    )


def held_bytes(params: Any, execution: Execution, microbatches: int) -> dict[str, int] | None:
    """Bytes on one device that ZeRO stage 1 needs during a step beside what is stored.

    Args:
        params: the model, of arrays or `ShapeDtypeStruct` with NamedSharding; call under its mesh.
        microbatches: whole gradients of several are summed in float32, and in a pipeline always.

    Returns:
        None where weights are gathered where they are multiplied.
    """
    if not execution.gathers_weights_once:
        return None
    whole = jax.eval_shape(lambda params: all_gather_params(params, execution), params)
    leaves = jax.tree.leaves(whole, is_leaf=is_variable)
    matrices = [leaf.get_value() for leaf in leaves if is_matrix(leaf)]
    parts = [(math.prod(leaf.sharding.shard_shape(leaf.shape)), leaf.dtype) for leaf in matrices]
    held = sum(elements * dtype.itemsize for elements, dtype in parts)
    one = microbatches == 1 and not execution.rules.axes("layers")
    summed = held if one else sum(elements for elements, _ in parts) * FLOAT32
    return {"zero_stage": execution.zero_stage, "matrices": held, "gradients": summed}


def held_line(held: dict[str, int]) -> str:
    """`held_bytes` in words."""
    return (
        f"zero_stage {held['zero_stage']}: during a step also {held['matrices']:,} bytes/device of "
        f"gathered matrices; {held['gradients']:,} of their gradients"
    )


def warnings(all_rows: list[ParameterRow]) -> list[str]:
    """Tensors that are replicated over axes that could shard them; small ones in one line."""
    whole = [row for row in all_rows if row.free_axes]
    total = sum(row.bytes for row in all_rows)
    large = [row for row in whole if row.bytes >= WORTH_A_LINE * total]
    small = [row for row in whole if row not in large]
    lines = [
        f"{row.name} ({format_size(row.bytes)}) is replicated over {', '.join(row.free_axes)}, "
        f"which could have been used to shard it"
        for row in large
    ]
    for axes in dict.fromkeys(row.free_axes for row in small):  # in the order of the tensors
        alike = [row for row in small if row.free_axes == axes]
        size = sum(row.bytes for row in alike)
        share = f"{size / total:.2%}" if size >= total / 10_000 else "under 0.01 %"
        lines.append(
            f"{len(alike)} small tensors ({format_size(size)}, {share} of the parameters) "
            f"are replicated over {', '.join(axes)}, which could have been used to shard "
            "them: " + ", ".join(row.name for row in alike)
        )
    return lines
