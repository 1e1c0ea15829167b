"""MaxText from PyPI, unmodified: its train_compile for Llama-2 7B, 64 GPUs, cuDNN attention.

FLOPs of a GPU: 6 N a token of 4 x 4096, N = 6.61e9 without the embedding's table (Touvron et al.,
arXiv 2307.09288: 32 layers of 4 D^2 + 3 D F, D = 4096, F = 11,008, V = 32,000), attention under its
mask 6 x 32 x T D, and the layers' forward pass again (remat_policy=full).
"""

from contextlib import suppress
from importlib.resources import files
from unittest.mock import patch

import jax

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "maxtext"
L, D, F, V, T, BATCH, GPUS = 32, 4096, 11_008, 32_000, 4096, 4, 64
FLAGS = (
    "model_name=llama2-7b", "run_name=priced", "hardware=gpu", "attention=cudnn_flash_jax",
    "compile_topology=a3", "compile_topology_num_slices=8", "dcn_data_parallelism=8",
    "ici_fsdp_parallelism=8", f"per_device_batch_size={BATCH}", f"max_target_length={T}",
    "remat_policy=full", "dataset_type=synthetic", "enable_checkpointing=false",
    "skip_jax_distributed_system=true",
)  # fmt: skip
LAYERS = L * (2 * (4 * D**2 + 3 * D * F) + 4 * T * D / 2)
TOKENS = BATCH * T
WORK = Work(TOKENS * (4 * LAYERS + 6 * V * D))


def price() -> sc.Prediction:
    from maxtext.trainers.pre_train import train_compile

    base = str(files("maxtext.configs") / "base.yml")
    kept = {}

    class Lowered(Exception):
        """The step is lowered: nothing is compiled here, or run."""

    def keep(lowered, **_):
        kept["step"] = lowered
        raise Lowered

    with sc.pretend("dgx-h100", nodes=8), patch.object(jax.stages.Lowered, "compile", keep):
        with suppress(Lowered):
            train_compile.main(["", base, *FLAGS])
    return sc.predict_step(kept["step"], cluster="dgx-h100", nodes=8)
