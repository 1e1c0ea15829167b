"""A transfer, and the sizes of a step that all transfers and kernels follow from."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from scaling.analytic.software import (
    SoftwareTraits,
    software_traits,
    traits_of,
    with_overlap,
)
from scaling.analytic.stages import Dealt, Stages, stages_of
from scaling.meshes.errors import InputError
from scaling.meshes.shape import AnyMesh, AxisSize, MeshShape
from scaling.models.accounting.expert_buffers import kernels_divide
from scaling.models.accounting.flops import recomputed
from scaling.models.accounting.logits import loss_chunks
from scaling.models.accounting.matrices import (
    BYTES,
    OF_LATENTS,
    Stack,
    layer_kinds,
    share_of_device,
)
from scaling.models.accounting.remat import AUTO, LADDER, Remat, keeps, kept_by
from scaling.models.config import ModelConfig, Moe, with_positions
from scaling.program.ir import CollectiveKind, Number, as_float
from scaling.run import OURS, Module, Run
from scaling.run.parallelism.rules import (
    is_sequence_parallel,
    latent_axes,
    weight_axes,
    weight_shards,
    zero_stage,
)
from scaling.run.parallelism.sequence import attended_model

FLOAT32 = BYTES["fp32"]
REMATS = ("none", "selective", "full")
FULL = REMATS.index("full")
NODE = 8  # devices of a node, where no cluster is given
# Of a layer forward and backward: collectives over tensor (before and after attention and MLP, and
# two gathers again), operations of the host (`scaling.analytic.kernels.LAUNCHED`).
COLLECTIVES, OPERATIONS = 10, 56
# FLOP/s of products: 40 % of the 989e12 of an H100 (NVIDIA's datasheet), a usual MFU. It decides
# which stage is the slowest, and no time.
RATE = 4e14
# Cores that DeepEP's kernels hold (arXiv 2412.19437, section 3.2.2), also while they wait: 90 % of
# a pair in the published profile (deepseek-ai/profile-data, train.json).
DEEPEP_CORES = 20
RINGS_ALIKE = 3  # doublings of the devices of a ring that do not set it apart


@dataclass(frozen=True)
class Transfer:
    """Equal calls of one collective per step."""

    axes: str  # of more than one device, joined by + in mesh order; "": moves nothing
    kind: CollectiveKind
    bytes: Number  # of one call; what is due at the same place travels together
    calls: Number  # per step
    what: str
    place: str = "end"  # where it is due: a phase and a place of `scaling.analytic.schedule`
    moe: bool = False  # in layers with experts


@dataclass(frozen=True)
class Grid:
    """What may differ between configurations of one mesh: numbers, or arrays [configurations]."""

    microbatches: Number
    global_batch: Number  # sequences
    zero_stage: Number
    remat: Number  # index into `policies`
    again: Number = np.inf  # `pipeline.remat_layers`, where remat is "full"; infinite: all layers
    fewer: Number = 0.0  # `pipeline.remat_fewer`


def policies(run: Run) -> tuple[Remat, ...]:
    """The remat policies that a grid may have: any software's three, and the run's own, or those
    that "auto" chooses from."""
    if run.remat == AUTO:
        return (
            REMATS if run.software != OURS else (*REMATS, *(r for r in LADDER if r not in REMATS))
        )
    return REMATS if run.remat in REMATS else (*REMATS, run.remat)


def grid_of(run: Run, mesh: MeshShape) -> Grid:
    """The run's own settings as a grid of one configuration.

    Raises:
        InputError: remat "auto", which is to be chosen first.
    """
    kept_by(run.remat)
    batch, remat = run.batch, policies(run).index(run.remat)
    some = run.remat == "full" and run.pipeline.remat_layers
    again = (run.pipeline.remat_layers, run.pipeline.remat_fewer) if some else ()
    return Grid(batch.microbatches, batch.global_batch, zero_stage(run, mesh), remat, *again)


@dataclass(frozen=True, eq=False)
class StepSizes:
    """A run on a mesh, with the sizes that its transfers and kernels follow from.

    Figures that follow from the grid, or from several meshes, are numbers, or arrays over
    configurations. Several meshes have the same `structure`; an axis that one of them cuts is cut
    in all, in some of them into one part, which costs nothing.
    """

    run: Run
    shape: AnyMesh
    config: ModelConfig
    sequence_parallel: bool
    vocab_is_sharded: bool  # over tensor
    traits: SoftwareTraits
    grid: Grid
    flash: float = 1.0  # rate of the fused attention over the chip's best; 0: there is none
    node: int = NODE  # devices of a node
    grouped: bool = True  # whether the chip runs the trainer's kernels of experts
    cores: int | None = None  # of the chip; None: not known

    @cached_property
    def active_axes(self) -> frozenset[str]:
        """Axes of more than one device, in any of the configurations."""
        return frozenset(axis for axis, size in self.shape.sizes.items() if np.any(size > 1))

    @cached_property
    def is_own_trainer(self) -> bool:
        """True for this project's trainer, whose compiled program is known."""
        return self.traits.name == OURS

    @cached_property
    def itemsize(self) -> int:
        """Bytes of an element in compute format."""
        return BYTES[self.run.precision.between]

    @cached_property
    def experts(self) -> Moe:
        """The experts of a model that has some."""
        assert self.config.moe is not None
        return self.config.moe

    @cached_property
    def stream(self) -> Number:
        """Bytes of one microbatch's residual stream, not cut over tensor: X of the table."""
        return self.tokens * self.config.d_model * self.itemsize

    @cached_property
    def stream_parts(self) -> Number:
        """Devices of tensor that share the tokens of the stream out between products."""
        return self.shape.tensor if self.sequence_parallel else 1

    @cached_property
    def stream_shard(self) -> Number:
        """Bytes of it on one device, as norms read it."""
        return self.stream / self.stream_parts

    @cached_property
    def head_parts(self) -> Number:
        """Stages that share the tokens of the output head out."""
        return self.shape.stage if self.runs_in_ticks else 1

    @cached_property
    def microbatches(self) -> Number:
        """Microbatches of a step, M of the table."""
        return self.grid.microbatches

    def where_remat(self, holds: Callable[[Remat], float]) -> Number:
        """1 where the remat policy has this property, else 0; or the share of layers that have."""
        every = ((self._has_remat[i], holds(r)) for i, r in enumerate(policies(self.run)))
        return sum(has * share for has, share in every if share)

    @cached_property
    def _has_remat(self) -> list[Number]:
        """1 where the remat policy is the one of each number, else 0."""
        return [as_int(np.equal(self.grid.remat, i)) for i in range(len(policies(self.run)))]

    def keeps(self, *names: str) -> Number:
        """1 where the remat policy keeps all of these tensors, else 0; "none" keeps all."""
        return self.where_remat(lambda remat: keeps(remat, *names))

    def on_host(self, name: str) -> Number:
        """1 where remat keeps a tensor in the host's memory, else 0."""
        offloaded = lambda kept: kept is not None and name in kept.offload
        return self.where_remat(lambda remat: offloaded(kept_by(remat)))

    @cached_property
    def is_partial(self) -> bool:
        """True if stages compute some of their layers again and keep all of the others."""
        return bool(np.any(np.isfinite(self.grid.again)))

    @cached_property
    def kept(self) -> "StepSizes":
        """The step as those layers are that keep everything."""
        none = replace(self.grid, remat=0 * self.grid.remat, again=np.inf, fewer=0.0)
        return replace(self, grid=none)

    def recomputes(self, product: str) -> Number:
        """1 where the backward pass computes a product of a layer again, else 0.

        Other software's full remat repeats the layer, its selective one the modules of `recompute`,
        by itself the attention's core (arXiv 2205.05198, section 5).
        """
        if not self.is_own_trainer:
            up = self.recomputes_module("mla_up_proj") * (product in OF_LATENTS)
            return self.remat_is("full") + up
        return self.where_remat(lambda remat: recomputed(self.config, remat).get(product, 0))

    @property
    def recomputes_core(self) -> Number:
        """1 where other software computes the attention's core again, else 0."""
        return self.remat_is("full") + self.recomputes_module("core_attn")

    def recomputes_module(self, *modules: Module) -> Number:
        """1 where other software's "selective" computes one of these modules again, else 0."""
        return self.remat_is("selective") * bool({*modules} & {*self.run.recompute})

    def remat_is(self, policy: str) -> Number:
        """1 where the remat policy has this name, else 0."""
        return self.where_remat(lambda remat: remat == policy)

    @cached_property
    def recomputes_some(self) -> Number:
        """1 where remat computes parts of a layer again, else 0."""
        return 1 - self.remat_is("none")

    @cached_property
    def repeats_layer(self) -> Number:
        """1 where remat computes more of a layer again than the attention's core, else 0."""
        return self.recomputes_some if self.is_own_trainer else self.remat_is("full")

    def is_zero_stage(self, *stages: int) -> Number:
        """1 where weights are in one of these ZeRO stages, else 0; where none are sharded, in 3."""
        return sum(self._has_zero_stage[stage] for stage in stages)

    @cached_property
    def _has_zero_stage(self) -> list[Number]:
        stage = np.where(np.greater(self.weight_shards, 1), self.grid.zero_stage, 3)
        return [as_int(np.equal(stage, one)) for one in range(4)]

    @cached_property
    def weight_axes(self) -> tuple[str, ...]:
        """Axes that shard dense weights."""
        return weight_axes(self.run, self.shape)

    @cached_property
    def latent_axes(self) -> tuple[str, ...]:
        """Axes that shard the matrices whose inputs are latents."""
        return latent_axes(self.run, self.shape)

    @cached_property
    def weight_shards(self) -> AxisSize:
        """Shards of a dense weight over these axes."""
        return weight_shards(self.run, self.shape)

    @cached_property
    def trains_all(self) -> int:
        """1 where the model's own parameters are trained, 0 where adapters alone are."""
        return int(self.run.train.trains_all)

    @cached_property
    def is_sum(self) -> Number:
        """1 where gradients are sums over microbatches or ticks, else 0."""
        return 1 if "stage" in self.active_axes else as_int(np.greater(self.microbatches, 1))

    @cached_property
    def summed_itemsize(self) -> int:
        """Bytes of an element of a gradient in the sum over microbatches."""
        return FLOAT32 if self.is_own_trainer else BYTES[self.run.precision.gradients]

    @cached_property
    def arising_itemsize(self) -> int:
        """Bytes of an element of a gradient as it is summed over devices where it arises."""
        in_float32 = self.is_own_trainer and self.run.precision.reduce == "fp32"
        return FLOAT32 if in_float32 else self.itemsize

    @cached_property
    def gradient_itemsize(self) -> Number:
        """Bytes of an element of a gradient as it is summed over devices after the last
        microbatch."""
        if not self.is_own_trainer:
            reduced = BYTES[self.run.precision.reduce or self.traits.reduce]
            return min(self.summed_itemsize, max(self.itemsize, reduced))
        return np.where(self.is_sum, np.int64(FLOAT32), self.arising_itemsize)[()]

    @cached_property
    def gathers_fp8(self) -> bool:
        """True if matrices of layers are gathered over devices as products in fp8 take them."""
        precision = self.run.precision
        return precision.compute == "fp8" == (precision.gather or self.traits.gather)

    def issue_of(self, axes: str) -> Number:
        """Seconds that the host takes to start a collective over these axes."""
        traits, sizes = self.traits, self.shape
        spans = np.greater(sizes.stage, 1) & np.greater(sizes.devices, self.node)
        late = traits.crossing * sizes.tensor * spans if axes == "tensor" else 0.0
        return traits.launch + traits.collective + late

    @cached_property
    def virtual_stages(self) -> int:
        """Parts of the model's layers that each stage has."""
        return self.run.pipeline.virtual_stages if "stage" in self.active_axes else 1

    @cached_property
    def edges(self) -> Number:
        """Microbatches beside which weights are gathered and gradients summed once per step.

        Virtual stages take turns after as many microbatches as there are stages. Each communicates
        while the next works (NVIDIA/Megatron-LM, core/pipeline_parallel/schedules.py:
        grad_sync_func, param_sync_func).
        """
        return np.minimum(self.shape.stage, self.microbatches) if self.takes_turns else 1

    @cached_property
    def takes_turns(self) -> bool:
        """True if virtual stages communicate beside one another."""
        return self.virtual_stages > 1 and self.traits.hides_pipeline

    @property
    def is_dualpipe(self) -> bool:
        """True if microbatches enter the pipeline at both of its ends (arXiv 2412.19437)."""
        return self.run.pipeline.schedule == "dualpipe" and "stage" in self.active_axes

    @property
    def held(self) -> int:
        """Stages whose weights a device holds: of DualPipe those that it is from either end."""
        return 1 + self.is_dualpipe

    @property
    def sharers(self) -> Number:
        """Devices of different stages that share out the optimizer's state of equal weights: where
        ZeRO does so, the two of DualPipe that hold the same two stages."""
        replicas = np.equal(self.shape.fsdp, 1) & np.greater(self.shape.data, 1)
        shares = np.greater_equal(self.grid.zero_stage, 1) & ~replicas
        return np.where(shares, self.held, 1)[()]

    @property
    def pairs(self) -> bool:
        """True if the layers of one microbatch go forward beside those of another going backward,
        which hides what both exchange with their experts."""
        hides, is_exchanged = self.run.overlap.experts, "expert" in self.active_axes
        return self.is_dualpipe if hides is None else hides and (is_exchanged or self.is_dualpipe)

    @property
    def cores_left(self) -> float:
        """Share of the chip's cores that kernels have beside the exchange of a pair."""
        is_deepep = self.run.dispatcher == "deepep" and "expert" in self.active_axes
        cores = self.cores or 0
        return 1 - DEEPEP_CORES / cores if is_deepep and cores > DEEPEP_CORES else 1.0

    @property
    def unpaired(self) -> Number:
        """Microbatches of a step with none beside, but for those of the bubble: as their orders
        have it (replayed by tests/oracle/pipelines.py; of DualPipe, deepseek-ai/DualPipe's)."""
        stages, virtual = self.shape.stage, self.virtual_stages
        count = stages + 1 if self.is_dualpipe else 1 - (stages - 1) * (1 - virtual) // virtual
        return self.pairs * np.minimum(count, self.microbatches)

    @cached_property
    def runs_in_ticks(self) -> bool:
        """True if all stages compute in every iteration of the pipeline, as our trainer's do."""
        return "stage" in self.active_axes and self.is_own_trainer

    @property
    def parts(self) -> int:
        """Parts of a stage's layers that our pipeline passes through, one in each tick."""
        return self.virtual_stages if self.runs_in_ticks else 1

    @cached_property
    def embeddings(self) -> Number:
        """How often a device embeds a microbatch in a step; our pipeline does so before it, and in
        idle iterations too."""
        return self.microbatches + self.shape.stage * self.runs_in_ticks

    @cached_property
    def iterations(self) -> Number:
        """Iterations of a pass of the pipeline, idle ones of our trainer's included."""
        busy = self.microbatches * self.virtual_stages
        return busy + self.shape.stage - 1 if self.runs_in_ticks else busy

    @cached_property
    def stages(self) -> Stages:
        """The layers of the fullest and of the slowest stage."""
        length, parts = self.run.batch.seq_len, self.virtual_stages
        calls = COLLECTIVES * np.greater(self.shape.tensor, 1)
        seconds = calls * self.issue_of("tensor") + OPERATIONS * self.traits.launch
        host = seconds * RATE * self.shape.tensor / (6 * self.tokens)
        again = parts * self.grid.again, parts * self.grid.fewer, self.remat_is("full")
        return stages_of(self.config, length, self.shape.stage, self.dealt, host, *again)

    @property
    def dealt(self) -> Dealt:
        """How layers are dealt out over stages: as the run says, or as its software does."""
        return "ends" if self.run.pipeline.layers == "by-cost" else self.traits.stages

    def stored(self, layers: int) -> AxisSize:
        """How many of `layers` layers, equal ones of the model, the fullest stage stores."""
        return self._of_kind(layers, self.stages.fullest)

    def worked(self, layers: int) -> AxisSize:
        """How many of `layers` layers, equal ones of the model, the slowest stage runs."""
        return self._of_kind(layers, self.stages.slowest)

    def again(self, layers: int) -> Number:
        """How many of those it computes again as remat says; the others keep everything."""
        worked, stages = self.worked(layers), self.stages
        if not self.is_partial:
            return worked
        return np.rint(worked * stages.again / np.maximum(stages.slowest, 1))

    def _of_kind(self, layers: int, of_stage: AxisSize) -> AxisSize:
        if self.stages.table is None and self.dealt == "layers":
            own, every, moe = -(-layers // self.shape.stage), self.config.n_layers, self.config.moe
            if not moe or layers != moe.first_dense_layers or 2 * layers == every:
                return own
            # Leading layers without experts are of the first stages; the others have none.
            return np.where(every - layers < -(-every // self.shape.stage), own, 0)[()]
        return -(-layers * of_stage // self.config.n_layers)

    def passes(self, layers: int) -> Number:
        """A device's passes through `layers` layers in a step: M L of the table."""
        return self.iterations * self.worked(layers) / self.virtual_stages

    @cached_property
    def sequences(self) -> Number:
        """Sequences of one microbatch on the fullest device: b of the table."""
        local = np.ceil(self.grid.global_batch / self.shape.batch_shards)
        return as_float(np.ceil(local / self.microbatches))

    @cached_property
    def tokens(self) -> Number:
        """Tokens of one microbatch on one device, not cut over tensor: b seq_len / context."""
        return self.sequences * self.run.batch.seq_len / self.shape.context

    @cached_property
    def head_tokens(self) -> Number:
        """Tokens of one microbatch that the output head of a device meets."""
        own = self.shape.tensor if self.sequence_parallel and not self.vocab_is_sharded else 1
        return self.tokens / self.head_parts / own

    @cached_property
    def head_rows(self) -> Number:
        """Rows of the token table, or of the output head, on a device."""
        return -(-self.config.vocab_size // (self.shape.tensor if self.vocab_is_sharded else 1))

    @cached_property
    def table(self) -> Number:
        """Elements of the token table, or of the output head, on a device, whole over fsdp."""
        return self.head_rows * self.config.d_model

    @cached_property
    def heads(self) -> Number:
        """Heads on a device, whole ones."""
        return -(-self.config.n_heads // self.shape.tensor)

    @cached_property
    def loss_chunks(self) -> Number:
        """Chunks in which the trainer computes a microbatch's loss; other software has one."""
        if not self.is_own_trainer:
            return 1
        return np.vectorize(loss_chunks, otypes=[np.int64])(self.head_tokens, self.head_rows)[()]

    @cached_property
    def layer_kinds(self) -> tuple[tuple[bool, int], ...]:
        """(has experts, number of layers) for each kind of layer that the model has."""
        return layer_kinds(self.config)

    def axis_names(self, *axes: str) -> str:
        """Join the axes that have more than one device by +, in mesh order."""
        return "+".join(a for a in self.shape.device_order if a in axes and a in self.active_axes)

    def share(self, stack: Stack) -> Number:
        """The share of a matrix that one device of tensor has."""
        return share_of_device(self.config, stack, self.shape.tensor)


def step_sizes(
    run: Run,
    shape: AnyMesh,
    grid: Grid | None = None,
    traits: SoftwareTraits | None = None,
    flash: float = 1.0,
    node: int = NODE,
    grouped: bool = True,
    cores: int | None = None,
) -> StepSizes:
    """The sizes of a run's step on the mesh `shape`; `grid` replaces the run's own settings."""
    traits = with_overlap(traits or traits_of(run.software), run.overlap)
    check_recomputed(run, traits)
    parts = int(np.max(shape.tensor))
    parallel = parts > 1 and is_sequence_parallel(run, MeshShape(tensor=parts))
    if grid is None:
        assert isinstance(shape, MeshShape)  # several meshes come with a grid
        grid = grid_of(run, shape)
    divides = traits.name != OURS or bool(np.all(run.model.vocab_size % shape.tensor == 0))
    return StepSizes(
        run,
        shape,
        with_positions(attended_model(run), run.batch.seq_len),
        parallel,
        divides and parts > 1,
        traits,
        grid,
        flash,
        node,
        grouped,
        cores,
    )


def check_recomputed(run: Run, traits: SoftwareTraits) -> None:
    """Raise InputError for stages that compute again what their software cannot tell apart."""
    own, known = run.pipeline, software_traits().values()
    for key, value, able in (
        ("remat_layers", own.remat_layers, ("alike", "each")),
        ("remat_fewer", own.remat_fewer, ("each",)),
    ):
        if value and traits.recomputes not in able:
            names = ", ".join(one.name for one in known if one.recomputes in able)
            raise InputError(
                f"pipeline.{key}={value}: {run.software} is not known to tell layers, or stages, "
                f"apart where it computes them again; leave it out, or price {names}"
            )


def structure(run: Run, mesh: MeshShape) -> tuple[Any, ...]:
    """What meshes that are priced side by side have in common: the operations of their steps.

    Rings of few devices stand apart from those of many, whose every hop is an operation.
    """
    hops = mesh.context.bit_length() if run.context.method == "ring" else 0
    return (
        run.model.vocab_size % mesh.tensor == 0,
        run.model.moe is not None and kernels_divide(run.model, mesh.tensor),
        mesh.stage > 1,
        mesh.context > 1 and (1 + hops // RINGS_ALIKE),
        weight_axes(run, mesh),
        latent_axes(run, mesh),
    )


def per_size(figure: Callable[[int], float], sizes: AxisSize) -> Number:
    """A figure of each size: a number, or an array [configurations]."""
    if not isinstance(sizes, np.ndarray):
        return figure(sizes)
    distinct, number = np.unique(sizes, return_inverse=True)
    return np.array([figure(int(size)) for size in distinct], float)[number]


def as_int(is_true: Any) -> Number:
    """1 where a numpy array or truth value is true, else 0.

    Of 64 bits, which products of bytes need: numpy's own integers have 32 in a browser (Pyodide).
    """
    numbers: Number = is_true.astype(np.int64)
    return numbers
