"""The training state by name: how it is saved, restored and shown.

params/layers/attention/query_DNK      optimizer/1/0/mu/layers/attention/query_DNK      step
"""

from typing import Any

import jax

from models.layout import Layout
from scaling.run import Run
from scaling.stages import recomputes
from scaling.train.step import TrainState

AMPERE = 8.0  # oldest compute capability of cuDNN's flash attention (cuDNN 9 support matrix)


def layout_for(run: Run, rules: Any, platform: str) -> Layout:
    """How the blocks compute on `platform` ("gpu"/"cuda", "cpu", "tpu").

    Flash attention is cuDNN's: on NVIDIA GPUs, in bf16, for head_dim a multiple of 8 up to 128
    (cuDNN 9 documentation, fused attention support matrix). Elsewhere XLA's plain one is used,
    and for latent attention, whose values are of another length than its keys.
    """
    head = run.model.head_dim
    flash = (
        run.attention == "flash"
        and platform in ("gpu", "cuda")
        and run.precision.between == "bf16"
        and not run.model.mla
        and head % 8 == 0
        and head <= 128
    )
    return Layout(
        rules,
        run.precision.compute,
        run.remat,
        "cudnn" if flash else "xla",
        run.context.method,
        run.pipeline.virtual_stages,
        recomputes(run),
        run.sharding.zero_stage,
    )


def flash_platform(device: jax.Device) -> str:
    """The device's platform as `layout_for` takes it; GPUs without cuDNN's kernel differ.

    That kernel needs NVIDIA's Ampere (compute capability 8.0) or later.
    """
    if device.platform != "gpu":
        return device.platform
    nvidia = "cuda" in getattr(device.client, "platform_version", "").lower()
    capable = nvidia and float(getattr(device, "compute_capability", 0)) >= AMPERE
    return "gpu" if capable else "gpu without cuDNN"


def names(tree: Any) -> list[str]:
    """The path of every leaf of a pytree in flattening order: `params/final_norm/scale`."""
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
    return ["/".join(_name(key) for key in path if _name(key) != "value") for path in paths]


def to_dict(state: TrainState) -> dict[str, jax.Array]:
    """The state as a flat dictionary of arrays by name."""
    return dict(zip(names(state), jax.tree.leaves(state), strict=True))


def from_dict(like: TrainState, arrays: dict[str, Any]) -> TrainState:
    """The state with the structure of `like` and the leaves of `arrays`."""
    leaves = [arrays[name] for name in names(like)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _name(key: Any) -> str:
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
