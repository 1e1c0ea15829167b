"""Why a compiled program does otherwise than its parallelism asks for, as far as it is known.

A reason is a sentence and a test of the difference that it explains (`scaling.compare.audit`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from scaling.analytic.communication.activations import KEYS
from scaling.analytic.communication.table import expected_transfers
from scaling.analytic.communication.transfers import FLOAT32
from scaling.analytic.communication.weights import TABLES
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.activations import BYTES
from scaling.models.accounting.matrices import n_dense_layers, n_moe_layers
from scaling.parallelism.sequence import sequence_cut
from scaling.program.ir import Collective
from scaling.run import Run

ROUNDING = 0.01  # scalars that travel with matrices, padding
AGAIN = ".remat"  # in the name of what XLA's own rematerialisation adds

NOT_EXPLAINED = "not explained"
NO_MEMORY = "XLA computes again what does not fit into memory"
JOINED = "XLA adds the two gradients of a tied table before it sums them, and sums in float32"
ONCE = "XLA does once per step what each microbatch asks for"
ALONE = "XLA fetches once, for both passes, keys and values of a layer that is in no loop"
UNNAMED = "these groups of devices are those of no mesh axes"

Calls = list[tuple[Collective, float]]  # instructions and how often each runs in a step


@dataclass(frozen=True)
class Difference:
    """What the reasons are told from."""

    run: Run
    shape: MeshShape
    axes: str
    kind: str
    expected: float
    found: float
    calls: Calls


def _is_joined(difference: Difference) -> bool:
    """Whether the sum of a tied table is found in float32 instead of the compute format."""
    run, extra = difference.run, difference.found - difference.expected
    lines = expected_transfers(run, difference.shape) if run.model.tied_embeddings else ()
    here = [line for line in lines if (line.what, line.axes) == (TABLES, difference.axes)]
    asked = sum(line.bytes * line.calls for line in here if line.kind == difference.kind)
    wider = FLOAT32 / BYTES[run.precision.between] - 1
    return abs(extra - asked * wider) <= ROUNDING * difference.expected


def _is_alone(difference: Difference) -> bool:
    """Whether keys and values are fetched once less for each stack of a single layer."""
    run, missing = difference.run, difference.expected - difference.found
    alone = [n_dense_layers(run.model), n_moe_layers(run.model)].count(1)
    cut = sequence_cut(run, difference.shape)
    if not alone or cut is None or difference.axes != "context":
        return False
    lines = expected_transfers(run, difference.shape)
    calls = [c.bytes for c in lines if c.what == KEYS and c.kind == difference.kind]
    hops = cut.others if difference.kind == "permute" else 1
    once = sum(calls[:1]) * hops * run.batch.microbatches * alone
    return missing > 0 and abs(missing - once) <= ROUNDING * difference.expected


# The known reasons, the first that applies counts.
REASONS: tuple[tuple[str, Callable[[Difference], bool]], ...] = (
    (NO_MEMORY, lambda d: any(AGAIN in c.name for c, _ in d.calls)),
    (JOINED, _is_joined),
    (ALONE, _is_alone),
    (ONCE, lambda d: d.run.batch.microbatches > 1 and d.found < d.expected),
)


def reason_of(difference: Difference) -> str:
    """The first reason that applies, or that none does."""
    return next((words for words, holds in REASONS if holds(difference)), NOT_EXPLAINED)
