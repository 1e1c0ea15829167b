"""The counts of `experiments.quality` of four small steps, compiled for absent H100s.

python -m experiments.program_quality        about a minute; needs the extra `deviceless`
"""

from collections.abc import Mapping
from functools import cache

from experiments.quality import Quality, quality_of
from scaling.meshes import catalog
from scaling.profiles.io import profile_of
from scaling.run import Run, read_run
from scaling.simulate.step import Priced, price
from scaling.training.program import program_of_run

LAYERS, SEQ = 5, 2048  # five is the first dimension of nothing else
DENSE = {
    "vocab_size": 10240, "d_model": 1024, "n_layers": LAYERS, "n_heads": 8, "n_kv_heads": 4,
    "head_dim": 128, "d_ff": 2816, "mlp": "swiglu", "norm": "rmsnorm", "positions": "rope",
}  # fmt: skip
MOE = DENSE | {"moe": {"n_experts": 8, "experts_per_token": 2, "d_ff_expert": 1408}}
MLA = {
    "q_lora_rank": 384, "kv_lora_rank": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}  # fmt: skip
STEPS: Mapping[str, tuple[dict, dict[str, int], int]] = {  # model, mesh, sequences of a batch shard
    "fsdp": (DENSE, {"fsdp": 8}, 2),
    "fsdp and tensor": (DENSE, {"fsdp": 2, "tensor": 4}, 4),
    "experts": (MOE, {"fsdp": 2, "expert": 4}, 2),
    "latent attention": (DENSE | {"n_kv_heads": 8, "mla": MLA}, {"fsdp": 8}, 2),
}
CLUSTER = catalog.load("dgx-h100")


def step_of(model: dict, mesh: dict[str, int], sequences: int) -> Run:
    """A run of one microbatch under remat "selective"."""
    shards = mesh.get("fsdp", 1) * mesh.get("expert", 1)
    batch = {"global_batch": sequences * shards, "seq_len": SEQ}
    run = {"name": "step", "model": model, "batch": batch, "mesh": mesh, "remat": "selective"}
    return read_run(run, "run.json")


@cache
def compiled(name: str) -> tuple[Run, Priced, str]:
    """The run of a step, its priced program, and the compiler's text."""
    run = step_of(*STEPS[name])
    assert run.mesh is not None
    program, text = program_of_run(run, run.mesh, CLUSTER)
    return run, price(program, CLUSTER, profile_of(CLUSTER.accelerator)), text


def quality(name: str) -> Quality:
    """The counts of a step."""
    run, priced, text = compiled(name)
    assert run.mesh is not None
    return quality_of(priced, text, run, run.mesh)


def main() -> None:
    """Print a line for each step."""
    for name in STEPS:
        print(f"{name}: {quality(name)}")


if __name__ == "__main__":
    main()
