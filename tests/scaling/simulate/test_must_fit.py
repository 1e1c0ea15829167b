"""What others publish, measured runs and recipes, fits here on the same mesh, by closed form.

On the GPUs that they name, or on ones of no more memory: torchtitan's H100 have 96 GB, these 80.
The schedule of a pipeline is the trainer's; remat is "full" but where "selective" was published.
"""

import pytest

import scaling as sc
from scaling.meshes.shape import parse_mesh

TITAN = "pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md"
NEMO = "NVIDIA/NeMo nemo/collections/llm/recipes @ 8cfedd72"
LM = "NVIDIA/Megatron-LM examples/mixtral/train_mixtral_8x7b_distributed.sh @ d98e8a64"
BRIDGE = "NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/perf_recipes @ 067f987d"
# source, model, nodes of 8 H100, mesh, tokens; sequences and microbatches of a batch shard; remat
RUNS = [
    (f"{TITAN} table 1", "llama3-8b", 1, "fsdp=8", 8192, 2, 1, "selective"),
    (f"{TITAN} table 2", "llama3-8b", 1, "fsdp=8", 32_768, 1, 1, "full"),
    (f"{TITAN} table 2", "llama3-8b", 1, "fsdp=4,context=2", 65_536, 1, 1, "full"),
    (f"{TITAN} table 2", "llama3-8b", 1, "fsdp=2,context=4", 131_072, 1, 1, "full"),
    (f"{TITAN} table 2", "llama3-8b", 1, "context=8", 262_144, 1, 1, "full"),
    (f"{TITAN} table 3", "llama3-8b", 16, "fsdp=128", 8192, 2, 1, "selective"),
    (f"{TITAN} table 4", "llama3-70b", 32, "fsdp=32,tensor=8", 8192, 16, 1, "full"),
    (NEMO, "llama3-8b", 1, "fsdp=4,context=2", 8192, 128, 128, "full"),
    (NEMO, "mistral-7b", 1, "fsdp=4,context=2", 4096, 128, 128, "full"),
    (NEMO, "mixtral-8x7b", 4, "stage=2,context=4,tensor=4", 16_384, 512, 512, "full"),
    (NEMO, "mixtral-8x7b", 16, "stage=4,context=4,tensor=8", 65_536, 512, 512, "full"),
    (NEMO, "llama3-70b", 4, "stage=2,context=2,tensor=8", 16_384, 512, 512, "full"),
    (NEMO, "llama3-70b", 32, "stage=4,context=8,tensor=8", 65_536, 512, 512, "full"),
    (NEMO, "llama3-8b", 8, "stage=2,context=8,tensor=4", 131_072, 512, 512, "full"),
    (BRIDGE, "llama3-8b", 8, "fsdp=32,context=2", 8192, 32, 32, "full"),
    (BRIDGE, "qwen3-30b-a3b", 2, "expert=16", 4096, 64, 64, "full"),
    (LM, "mixtral-8x7b", 4, "stage=4,expert=8", 4096, 32, 32, "full"),
]  # fmt: skip


@pytest.mark.parametrize("row", RUNS, ids=lambda row: f"{row[1]}-{row[3]}-{row[4]}")
def test_published_runs_fit(row: tuple) -> None:
    _, model, nodes, mesh, tokens, sequences, microbatches, remat = row
    values = {
        "batch.seq_len": tokens,
        "batch.global_batch": sequences * parse_mesh(mesh).batch_shards,
        "batch.microbatches": microbatches,
        "remat": remat,
    }
    place = {"cluster": "dgx-h100", "nodes": nodes, "mesh": mesh}
    found = sc.predict(model, **place, source="analytic", set=values)
    assert found.memory.fits and found.step_time > 0
