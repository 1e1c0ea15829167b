"""Two measured throughputs of one training, and the two unknowns behind them.

    measured seconds of a step = predicted(tokens of a sample) + seconds outside the GPU

Samples were at most 4,096 tokens long; how long on average was not stated. Nor was what a step
waits for outside the GPU: data, Python, logging. Two machines give two equations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

import scaling as sc
from scaling.meshes.shape import parse_mesh

MODEL, NODES = "qwen3-0.6b", 4
STATED_LENGTH = 4096  # tokens: the longest sample
STATED_SEQUENCES = 4  # of a device
LENGTHS = tuple(round(2 ** (power / 2)) for power in range(18, 25))  # 512 to 4,096 tokens


@dataclass(frozen=True)
class ReportedMachine:
    """What was reported of one machine."""

    name: str
    cluster: str  # of the catalogue, nearest to it
    rate: float  # samples/s
    training: float  # s

    @property
    def samples(self) -> float:
        """Samples of the whole training."""
        return self.rate * self.training

    def step(self, sequences: int = STATED_SEQUENCES) -> float:
        """Return the seconds of a measured step."""
        return sequences * _devices(self.cluster) / self.rate


# Support case: Qwen3-0.6B-Base with DeepSpeed ZeRO-2 on 4 nodes of A100 40GB and 4 of AWS P5e, 4
# sequences of at most 4,096 tokens a device. GPUs of a node and networks are not stated: 8 are
# assumed, and the networks of the catalogue.
OLD = ReportedMachine("A100 40GB", "dgx-a100-40g", 359.184, 39_496.7)
NEW = ReportedMachine("H200", "p5e", 549.465, 25_818.9)


@cache
def predicted(
    cluster: str,
    tokens: int,
    software: str = "jax",
    sequences: int = STATED_SEQUENCES,  # of each shard of the batch
    mesh: str = "",
    zero_stage: int = 2,
) -> sc.Prediction:
    """Return the step of the case on a cluster, in closed form, at a mean length of `tokens`."""
    mesh = mesh or f"fsdp={_devices(cluster)}"
    batch = sequences * parse_mesh(mesh).batch_shards
    return sc.predict(
        MODEL,
        *(cluster, NODES, mesh, "analytic"),
        set={
            **{"software": software, "sharding.zero_stage": zero_stage, "remat": "none"},
            **{"batch.global_batch": batch, "batch.seq_len": tokens, "batch.microbatches": 1},
        },
    )


def outside(machine: ReportedMachine, tokens: int, software: str = "jax") -> float:
    """Return the seconds of a measured step that the predicted one leaves; negative: impossible."""
    return machine.step() - float(predicted(machine.cluster, tokens, software).step_time)


def rests(machine: ReportedMachine, software: str) -> dict[int, float]:
    """Return `outside` by the tokens of LENGTHS."""
    return {tokens: outside(machine, tokens, software) for tokens in LENGTHS}


def solved(software: str, cluster: str) -> tuple[float, float] | None:
    """Return both unknowns, as `crossing` does, if the old machine was one of a cluster."""
    old = rests(replace(OLD, cluster=cluster), software)
    return crossing([*old.values()], [*rests(NEW, software).values()])


def crossing(
    old: Sequence[float], new: Sequence[float], lengths: Sequence[int] = LENGTHS
) -> tuple[float, float] | None:
    """Return where both machines leave the same seconds: tokens, and those seconds.

    Args:
        old, new: seconds outside the GPU at each of `lengths`, of both machines.
        lengths: tokens, ascending; between them seconds are a line in their logarithm.

    None: the curves do not cross.
    """
    gap = np.array(old) - np.array(new)  # falls: a longer sample costs the old machine more
    if not gap[0] >= 0 >= gap[-1]:
        return None
    place = float(np.interp(0.0, -gap, np.log(lengths)))
    return float(np.exp(place)), float(np.interp(place, np.log(lengths), new))


def _devices(cluster: str) -> int:
    return sc.load_cluster(cluster, NODES).devices
