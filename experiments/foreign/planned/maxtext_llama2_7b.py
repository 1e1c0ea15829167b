"""MaxText's Llama-2 7B on meshes of its own axes; needs MaxText (environments.sh maxtext).

    .venv-foreign/maxtext/bin/python -m scaling plan-step \
        experiments/foreign/planned/maxtext_llama2_7b.py:make --cluster dgx-h100 --nodes 8 \
        --axes data,fsdp,tensor --max tensor=8 --like llama2-7b --variants "remat_policy=full"

MaxText makes its mesh by itself, from flags: what lies over nodes (dcn_...) and inside of them.
"""

import math
from contextlib import suppress
from importlib.resources import files
from unittest.mock import patch

import jax

MODEL = (
    "model_name=llama2-7b", "run_name=planned", "hardware=gpu", "attention=cudnn_flash_jax",
    "compile_topology=a3", "per_device_batch_size=4", "max_target_length=4096",
    "dataset_type=synthetic", "enable_checkpointing=false", "skip_jax_distributed_system=true",
)  # fmt: skip


def flags(axes, nodes):
    """Return MaxText's flags of a mesh: the outermost axes lie over the nodes."""
    found, left = [f"compile_topology_num_slices={nodes}"], nodes
    for axis, size in axes.items():
        over = math.gcd(left, size)
        left //= over
        found += [f"dcn_{axis}_parallelism={over}", f"ici_{axis}_parallelism={size // over}"]
    return tuple(found)


def make(mesh, remat_policy="full", optimizer_memory_host_offload=False):
    from maxtext.trainers.pre_train import train_compile

    kept = {}

    class Lowered(Exception):
        """The step is lowered: it is compiled by whom it is returned to."""

    def keep(lowered, **_):
        kept["step"] = lowered
        raise Lowered

    base = str(files("maxtext.configs") / "base.yml")
    own = (*flags(dict(mesh.shape), jax.process_count()), f"remat_policy={remat_policy}")
    own += (f"optimizer_memory_host_offload={optimizer_memory_host_offload}".lower(),)
    with patch.object(jax.stages.Lowered, "compile", keep), suppress(Lowered):
        train_compile.main(["", base, *MODEL, *own])
    return kept["step"]
