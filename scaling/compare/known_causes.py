"""Known causes of discrepancies between a compiled program and what its parallelism needs.

A cause is a sentence and a test of the difference that it explains (`scaling.compare.audit`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from scaling.analytic.activations import KEYS
from scaling.analytic.step import FLOAT32
from scaling.analytic.table import expected_bytes, expected_transfers
from scaling.analytic.weights import TABLES
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.matrices import BYTES, n_dense_layers, n_moe_layers
from scaling.parallelism.sequence import sequence_cut
from scaling.program.ir import Collective
from scaling.run import Run

ROUNDING = 0.01  # scalars that travel with matrices, padding
REMAT_SUFFIX = ".remat"  # in the name of what XLA's own rematerialisation adds

NOT_EXPLAINED = "not explained"
REMATERIALISED = "XLA computes again what does not fit into memory"
TIED_TABLE = "XLA adds the two gradients of a tied table before it sums them, and sums in float32"
ONCE_PER_STEP = "XLA does once per step what each microbatch asks for"
FETCHED_ONCE = "XLA fetches once, for both passes, keys and values of a layer that is in no loop"
PASSED_ON_ONCE = (
    "XLA's compiler for CPUs passes keys and values on once for both, a layer that is computed "
    "again and its backward pass"
)
NO_MESH_AXES = "these groups of devices are those of no mesh axes"

Calls = list[tuple[Collective, float]]  # instructions and how often each runs in a step


@dataclass(frozen=True)
class Difference:
    """One difference, with all that its cause is found from."""

    run: Run
    shape: MeshShape
    axes: str
    kind: str
    expected: float
    found: float
    calls: Calls


def _is_tied_table(difference: Difference) -> bool:
    """Return True if the sum of a tied table is in float32 instead of the compute format."""
    run, extra = difference.run, difference.found - difference.expected
    lines = expected_transfers(run, difference.shape) if run.model.tied_embeddings else ()
    here = [line for line in lines if (line.what, line.axes) == (TABLES, difference.axes)]
    needed = sum(line.bytes * line.calls for line in here if line.kind == difference.kind)
    wider = FLOAT32 / BYTES[run.precision.between] - 1
    return abs(extra - needed * wider) <= ROUNDING * difference.expected


def _is_fetched_once(difference: Difference) -> bool:
    """Return True if keys and values move once less for each stack of a single layer."""
    run, missing = difference.run, difference.expected - difference.found
    single = [n_dense_layers(run.model), n_moe_layers(run.model)].count(1)
    cut = sequence_cut(run, difference.shape)
    if not single or cut is None or difference.axes != "context":
        return False
    lines = expected_transfers(run, difference.shape)
    calls = [c.bytes for c in lines if c.what == KEYS and c.kind == difference.kind]
    hops = cut.others if difference.kind == "permute" else 1
    once = sum(calls[:1]) * hops * run.batch.microbatches * single
    return missing > 0 and abs(missing - once) <= ROUNDING * difference.expected


def _is_passed_on_once(difference: Difference) -> bool:
    """Return True if keys and values move as without the permutes of layers computed again."""
    d, here = difference, (difference.axes, difference.kind)
    if d.run.remat != "full" or here != ("context", "permute"):
        return False
    kept = expected_bytes(replace(d.run, remat="none"), d.shape).get(here, 0.0)
    return abs(d.found - kept) <= ROUNDING * d.expected


# The first cause that applies counts.
CAUSES: tuple[tuple[str, Callable[[Difference], bool]], ...] = (
    (REMATERIALISED, lambda d: any(REMAT_SUFFIX in c.name for c, _ in d.calls)),
    (TIED_TABLE, _is_tied_table),
    (FETCHED_ONCE, _is_fetched_once),
    (PASSED_ON_ONCE, _is_passed_on_once),
    (ONCE_PER_STEP, lambda d: d.run.batch.microbatches > 1 and d.found < d.expected),
)


def cause_of(difference: Difference) -> str:
    """The first cause that applies; NOT_EXPLAINED if none does."""
    return next((words for words, holds in CAUSES if holds(difference)), NOT_EXPLAINED)
