"""A discrepancy between a compiled program and what its parallelism needs, and its known causes.

A cause is a sentence and a test of the discrepancies that it explains.
"""

from dataclasses import dataclass, replace

from scaling.analytic.activations import KEYS
from scaling.analytic.step import FLOAT32
from scaling.analytic.table import expected_bytes, expected_transfers
from scaling.analytic.weights import TABLES
from scaling.meshes.shape import MeshShape
from scaling.meshes.units import format_rate, format_size, format_time
from scaling.models.accounting.matrices import BYTES, n_dense_layers, n_moe_layers
from scaling.models.accounting.remat import keeps
from scaling.program.ir import Collective
from scaling.run import Run
from scaling.run.parallelism.sequence import sequence_cut

ROUNDING = 0.01  # scalars that travel with matrices, padding
PRODUCTS = "matrix products"
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
TAKEN_APART = (
    "with one microbatch the steady loop of 1F1B has one iteration: XLA takes it apart, and leaves "
    "out what is done there a second time or not used"
)
NO_MESH_AXES = "these groups of devices are those of no mesh axes"

Calls = list[tuple[Collective, float]]  # instructions and how often each runs in a step


@dataclass(frozen=True)
class Discrepancy:
    """One difference between the expected and the compiled program, per step and device."""

    axes: str  # joined by + in mesh order; "": none, or those that the program does not name
    kind: str  # of collective, or "matrix products"
    expected: float  # bytes as nccl-tests counts them; FLOPs of matrix products
    found: float
    calls: float  # per step, of the instructions below
    lines: tuple[str, ...]  # of the compiled program; of matrix products the instructions' names
    reason: str
    seconds: float  # per step, of the difference; negative: saved

    @property
    def extra(self) -> float:
        """Bytes or FLOPs found beyond those expected; negative: fewer."""
        return self.found - self.expected

    def is_extra(self, amount: float) -> bool:
        """Return True if so much is found beyond what is expected, within `ROUNDING`."""
        return abs(self.extra - amount) <= ROUNDING * self.expected

    def __str__(self) -> str:
        """One sentence for whoever runs it."""
        over = f" over {self.axes}" if self.axes else ""
        found, wanted = (self._amount(n) for n in (self.found, self.expected))
        change = "saves" if self.seconds < 0 else "costs"
        return (
            f"{self.kind}{over}: {found} per step instead of {wanted}, which {change} "
            f"{format_time(abs(self.seconds))}: {self.reason}"
        )

    def _amount(self, number: float) -> str:
        return format_rate(number, "FLOP") if self.kind == PRODUCTS else format_size(number)


def cause_of(found: Discrepancy, calls: Calls, run: Run, shape: MeshShape) -> str:
    """The first cause that applies to a discrepancy of these calls; NOT_EXPLAINED if none does."""
    if any(REMAT_SUFFIX in call.name for call, _ in calls):
        return REMATERIALISED
    # The sum of a tied table may be in float32 instead of the compute format.
    lines = expected_transfers(run, shape) if run.model.tied_embeddings else ()
    here = [t for t in lines if (t.what, t.axes, t.kind) == (TABLES, found.axes, found.kind)]
    wider = FLOAT32 / BYTES[run.precision.between] - 1
    is_tied_table = found.is_extra(wider * float(sum(line.bytes * line.calls for line in here)))
    if is_tied_table:
        return TIED_TABLE
    if _is_fetched_once(found, run, shape):
        return FETCHED_ONCE
    if _is_passed_on_once(found, run, shape):
        return PASSED_ON_ONCE
    if found.extra >= 0:
        return NOT_EXPLAINED
    if run.batch.microbatches > 1:
        return ONCE_PER_STEP
    return TAKEN_APART if shape.stage > 1 else NOT_EXPLAINED


def _is_fetched_once(found: Discrepancy, run: Run, shape: MeshShape) -> bool:
    """Return True if keys and values move once less for each stack of a single layer."""
    single = [n_dense_layers(run.model), n_moe_layers(run.model)].count(1)
    cut = sequence_cut(run, shape)
    if not single or cut is None or found.axes != "context" or found.extra >= 0:
        return False
    lines = expected_transfers(run, shape)
    calls = [float(line.bytes) for line in lines if line.what == KEYS and line.kind == found.kind]
    hops = cut.others if found.kind == "permute" else 1
    return found.is_extra(-sum(calls[:1]) * hops * run.batch.microbatches * single)


def _is_passed_on_once(found: Discrepancy, run: Run, shape: MeshShape) -> bool:
    """Return True if keys and values move as without the permutes of layers computed again."""
    here = found.axes, found.kind
    if keeps(run.remat, "attention") or here != ("context", "permute"):
        return False
    kept = expected_bytes(replace(run, remat="none"), shape).get(here, 0.0)
    return found.is_extra(kept - found.expected)
