"""A transfer, and the sizes of a step that all transfers of the table follow from."""

from dataclasses import dataclass

from scaling.meshes.shape import MeshShape
from scaling.models.accounting.matrices import BYTES
from scaling.models.config import ModelConfig, with_positions
from scaling.models.pipeline.schedule import PipelineSchedule
from scaling.parallelism.pipeline import computes_again, pipeline_schedule
from scaling.parallelism.rules import is_sequence_parallel, rules_for
from scaling.program.ir import CollectiveKind
from scaling.run import Run

FLOAT32 = INT32 = BYTES["fp32"]


@dataclass(frozen=True)
class Transfer:
    """Equal calls of one collective per step."""

    axes: str  # of more than one device, joined by + in mesh order; "": moves nothing
    kind: CollectiveKind
    bytes: float  # of one call; what is due at the same place travels together
    calls: float  # per step
    what: str


@dataclass(frozen=True)
class StepSizes:
    """A run on a mesh, with the sizes that its transfers follow from."""

    run: Run
    shape: MeshShape
    config: ModelConfig
    sequence_parallel: bool
    vocab_is_sharded: bool  # over tensor

    @property
    def itemsize(self) -> int:
        """Bytes of an element in compute format."""
        return BYTES[self.run.precision.between]

    @property
    def microbatches(self) -> int:
        """M of the table."""
        return self.run.batch.microbatches

    @property
    def pipeline(self) -> PipelineSchedule:
        """The pipeline; without stages one iteration per microbatch."""
        return pipeline_schedule(self.run, self.shape)

    @property
    def recompute(self) -> int:
        """Number of times that the backward pass computes a tick of a pipeline again, beside remat:
        0 or 1."""
        return int(computes_again(self.run, self.shape))

    @property
    def one_layer(self) -> bool:
        """True if a part of a pipeline is a single layer."""
        return self.config.n_layers == self.pipeline.stages * self.pipeline.virtual_stages

    def passes(self, layers: int) -> float:
        """Number of passes of a device through `layers` layers, M L of the table."""
        pipeline = self.pipeline
        return pipeline.iterations * layers / (pipeline.stages * pipeline.virtual_stages)

    @property
    def tokens(self) -> float:
        """b seq_len / context: of one microbatch on one device, not cut over tensor."""
        parts = self.shape.batch_shards * self.shape.context
        return self.run.batch.tokens / self.microbatches / parts

    def over(self, *axes: str) -> str:
        """The axes of more than one device among `axes`, joined by + in mesh order."""
        return "+".join(a for a, size in self.shape.sizes.items() if a in axes and size > 1)


def step_sizes(run: Run, shape: MeshShape) -> StepSizes:
    """The sizes of a run's step on the mesh `shape`."""
    return StepSizes(
        run,
        shape,
        with_positions(run.model, run.batch.seq_len),
        is_sequence_parallel(run, shape) and shape.tensor > 1,
        bool(rules_for(run, shape).axes("vocab")),
    )
