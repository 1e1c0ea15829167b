"""The Program of a run from closed forms: any software, one configuration or many of one mesh.

    program = analytic_program(run, shape)                    figures are numbers
    program = analytic_program(run, shape, grid=Grid(...))    arrays over configurations

A grid varies microbatches, batch, ZeRO stage and remat; the structure stays the same. What a
configuration does not do has no FLOPs and no bytes there, and costs nothing
(`scaling.simulate.step`). The trips of the loop over microbatches are then an array as well.

Its blocks: `scaling.analytic.blocks`, and those of the trainer `scaling.analytic.xla`.
"""

import numpy as np

from scaling.analytic.blocks import Blocks
from scaling.analytic.software import SoftwareTraits, traits_of
from scaling.analytic.step import NODE, Grid, StepSizes, step_sizes
from scaling.analytic.xla import XlaBlocks
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.shape import AnyMesh
from scaling.models.attention_kernels.support import AMPERE, HOPPER, has_flash
from scaling.models.lora import of_experts
from scaling.program.ir import Program
from scaling.run import OURS, Run

# FlashAttention-2 gets 35 % of an H100's peak, FlashAttention-3 75 % (arXiv 2407.08608, abstract).
FLASH_2_ON_HOPPER = 0.35 / 0.75


def analytic_program(
    run: Run,
    shape: AnyMesh,
    grid: Grid | None = None,
    flash: float | None = None,
    traits: SoftwareTraits | None = None,
    node: int = NODE,
    grouped: bool = True,
    cores: int | None = None,
) -> Program:
    """The Program of a step of `run` on the mesh `shape`.

    Args:
        grid: settings that replace the run's own, numbers or arrays over configurations.
        flash: rate of the fused attention kernel over the best of the chip, 0: there is none
            (`flash_rate`); None: as on NVIDIA's Hopper.
        traits: of the software, where they are not those that are shipped.
        node: devices of a node.
        grouped: whether the chip runs the trainer's kernels of experts.
        cores: of the chip, where they are known.

    Raises:
        InputError: a software that is not described, fewer sequences than shards, frozen
            parameters.
    """
    train = run.train
    key = "freeze" if train.freeze else "trainable" if train.trainable else ""
    experts = of_experts(train.lora, run.model)
    if key or experts or (train.lora and run.software != OURS):
        raise InputError(
            f"train.{key or 'lora'}: the closed form has no frozen parameters but those of the "
            "trainer's own adapters, of experts none; such a step is priced as it is compiled, by "
            "--source compiled"
        )
    flash = flash_rate(run, HOPPER) if flash is None else flash
    step = step_sizes(run, shape, grid, traits, flash, node, grouped, cores)
    _check(step)
    blocks = XlaBlocks(step) if step.is_own_trainer else Blocks(step)
    return blocks.program()


def flash_rate(run: Run, capability: float | None) -> float:
    """Rate of the software's fused attention over the chip's best; 0 where it has none.

    `capability` is an NVIDIA GPU's. The trainer's is cuDNN's, of bf16 (`train.execution`).
    """
    capability = capability or AMPERE
    if run.software == OURS:
        has_kernel = run.precision.between == "bf16" and has_flash(run.model, capability)
    else:
        has_kernel = capability >= AMPERE
    if run.attention != "flash" or not has_kernel:
        return 0.0
    return FLASH_2_ON_HOPPER if traits_of(run.software).flash_2 and capability >= HOPPER else 1.0


def closed_form(run: Run, shape: AnyMesh, cluster: Cluster, grid: Grid | None = None) -> Program:
    """The Program of a step on a cluster's devices; see `analytic_program`."""
    capability, is_absent = cluster.accelerator.compute_capability, not cluster.virtual_devices
    return analytic_program(
        run,
        shape,
        grid,
        flash=flash_rate(run, capability) if is_absent else 0.0,
        node=cluster.devices_per_node,
        grouped=is_absent and (capability or 0.0) >= AMPERE,
        cores=cluster.accelerator.cores,
    )


def _check(step: StepSizes) -> None:
    """Raise InputError for a batch that leaves devices without a sequence."""
    pairs = step.run.train.pairs
    least = step.shape.batch_shards * step.microbatches * (1 + pairs)  # a pair is two sequences
    short = np.ravel(step.grid.global_batch < least)
    if np.any(short):
        shards, count = int(np.max(step.shape.batch_shards)), int(np.max(step.microbatches))
        raise InputError(
            f"batch.global_batch={int(np.min(step.grid.global_batch))} is less than a "
            f"{'pair' if pairs else 'sequence'} in each of {count} microbatch(es) on each of "
            f"{shards} batch shards (data x fsdp x expert); use at least {int(np.max(least))}, "
            "fewer microbatches, or fewer shards"
        )
