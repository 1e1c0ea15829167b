"""What an expert looks for in a compiled step besides its time: counts that a test can hold.

    copies       kernels of the layers that only move, more than a quarter of the residual stream
    float32      kernels of the layers, no products, that write as much in float32
    overlapped   of the collectives of the layers those that are hidden at least by half
    products     FLOPs of all products over those that the run needs (`models.accounting`)
    head         FLOPs of the output head's products over those of one: 3 with its gradients

The layers are the loops of the schedule whose products are theirs; XLA takes single layers out of
them. What a scan stacks and takes from its stacks counts neither as a copy nor as float32, and the
stream is that of a microbatch on one device, between two blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scaling.hlo.parse import Instruction, Module, parse_module
from scaling.hlo.shapes import arrays
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import train_flops
from scaling.models.accounting.matrices import BYTES
from scaling.program.ir import Collective, Kernel, Loop, Operation, bodies, operations
from scaling.run import Run
from scaling.run.parallelism.rules import is_sequence_parallel
from scaling.simulate.step import Priced, running_kernels
from scaling.simulate.summary import LEAST_CALL, is_hidden

SHARE = 1 / 4  # of the stream: smaller arrays are latents, statistics, single heads
HEAD = ("head", "loss")  # where a kernel comes from (`scaling.hlo.attribution`)
STACKED = "dynamic"  # in XLA's names of kernels that slice stacks or update them, or what they call
FLOAT32 = BYTES["fp32"]


@dataclass(frozen=True)
class Quality:
    """The counts of one step; kernels by name."""

    copies: tuple[str, ...]
    float32: tuple[str, ...]
    overlapped: int
    collectives: int
    products: float
    head: float

    def __str__(self) -> str:
        """One line."""
        return (
            f"{len(self.copies)} copies, {len(self.float32)} float32 arrays, {self.overlapped} of "
            f"{self.collectives} collectives overlapped, FLOPs {self.products:.2f} of what is "
            f"needed, {self.head:.2f} products of the head"
        )


def quality_of(priced: Priced, text: str, run: Run, shape: MeshShape) -> Quality:
    """The counts of a step that was compiled without stages, and priced; `text` is its HLO."""
    loops = list(layer_loops(priced.program.schedule))
    inside = [op for loop in loops for op, _ in operations(loop.body)]
    shards, micro = shape.batch_shards, run.batch.microbatches
    tokens = run.batch.tokens / shards / shape.context / micro
    cut = shape.tensor if is_sequence_parallel(run, shape) else 1
    least = SHARE * tokens * run.model.d_model / cut
    calls = [op for op in inside if isinstance(op, Collective) and op.bytes >= LEAST_CALL]
    module = parse_module(text)
    stacked = {i.name for c in module.computations.values() for i in c if _is_stacked(i)}
    moving = [op for op in inside if op.name not in stacked]
    flops = sum(k.flops * n for k, n in running_kernels(priced))
    needed = train_flops(run.model, run.batch.global_batch, run.batch.seq_len, run.remat)
    return Quality(
        copies=tuple(op.name for op in moving if _copies(op, least * BYTES[run.precision.between])),
        float32=tuple(float32_arrays(module, loops, FLOAT32 * least)),
        overlapped=sum(is_hidden(priced, call.name) for call in calls),
        collectives=len(calls),
        products=float(flops * shape.devices / needed.total),
        head=head_products(priced, run, shape),
    )


def layer_loops(block: tuple[Operation, ...]) -> Iterator[Loop]:
    """The loops over layers, wherever they stand."""
    for op in block:
        if isinstance(op, Loop) and any(map(_is_product_of_layers, op.body)):
            yield op
        else:
            for body in bodies(op):
                yield from layer_loops(body)


def _is_product_of_layers(op: Operation) -> bool:
    return isinstance(op, Kernel) and bool(op.flops) and op.origin.layer.startswith("layers")


def _copies(op: Operation, least: float) -> bool:
    """True for a kernel that only moves, and writes more than `least` bytes."""
    return isinstance(op, Kernel) and op.kind == "copy" and bool(op.bytes / 2 > least)


def _is_stacked(instruction: Instruction) -> bool:
    """True for a kernel of a scan's stacks; XLA of jax 0.12 starts some as `fusion-start.1`."""
    return STACKED in instruction.name or STACKED in (instruction.attribute("calls") or "")


def float32_arrays(module: Module, loops: list[Loop], least: float) -> Iterator[str]:
    """Kernels of the loops, no products and no stacks, that write more than `least` float32 bytes.

    Products may write float32: their accumulators, where several parts of a sum are added later.
    """
    named = {loop.name: loop for loop in loops}
    for computation in module.computations.values():
        for instruction in computation:
            if instruction.opcode != "while" or instruction.name not in named:
                continue
            kernels = {
                op.name: op
                for op, _ in operations(named[instruction.name].body)
                if isinstance(op, Kernel)
            }
            for found in instruction.called("body")[0]:
                kernel = kernels.get(found.name)
                if kernel is None or kernel.flops or _is_stacked(found):
                    continue
                sizes = (FLOAT32 * a.elements for a in arrays(found.shape) if a.dtype == "f32")
                if any(size > least for size in sizes):
                    yield found.name


def head_products(priced: Priced, run: Run, shape: MeshShape) -> float:
    """FLOPs of the head's products over those of the logits."""
    flops = sum(
        kernel.flops * calls
        for kernel, calls in running_kernels(priced)
        if kernel.origin.layer.split("/")[0] in HEAD
    )
    one = 2.0 * run.batch.tokens * run.model.d_model * run.model.vocab_size
    return float(flops * shape.devices / one)
