"""One run as plain data: model, batch, mesh, precision, training. `run.json` is this, written down.

The defaults of `run.json` are those below; a key that is not known is an error.
"""

from dataclasses import dataclass, field
from typing import Literal

from scaling.meshes.bandwidths import MeasuredCall
from scaling.meshes.errors import InputError, check_fields, check_range
from scaling.meshes.shape import AXES, MeshShape
from scaling.models.accounting.remat import AUTO, POLICIES, SavedTensors, check_remat
from scaling.models.config import ModelConfig
from scaling.models.lora import Lora

OURS = "jax"  # the software whose trainer is ours
OWN_REDUCE: Literal["bf16"] = "bf16"  # in which it sums gradients, unless a run says otherwise
LARGEST_DIM = 2**31 - 1  # of an array whose rows jax numbers, which it does in int32

Dtype = Literal["bf16", "fp16", "tf32", "fp32", "fp8"]
Module = Literal["core_attn", "layernorm", "mla_up_proj", "moe_act"]


@dataclass(frozen=True)
class Batch:
    """The tokens that one optimiser step consumes.

    >>> import scaling as sc
    >>> sc.Batch(global_batch=512, seq_len=8192).tokens
    4194304
    """

    global_batch: int  # sequences
    seq_len: int  # tokens
    microbatches: int = 1  # per step, for accumulation or pipeline

    def __post_init__(self) -> None:
        check_fields(self, vars(self), 1, LARGEST_DIM)

    @property
    def tokens(self) -> int:
        """Tokens per step, whole job."""
        return self.global_batch * self.seq_len


@dataclass(frozen=True)
class Sharding:
    """How parameters and activations are spread over the mesh."""

    zero_stage: int | None = None  # 0..3, where weights are sharded; None: `rules.zero_stage`
    sequence_parallel: bool | None = None  # None: tensor > 1 for software "jax", else false

    def __post_init__(self) -> None:
        check_range("zero_stage", self.zero_stage or 0, 0, 3)


@dataclass(frozen=True)
class Pipeline:
    """Order in which pipeline stages work."""

    schedule: Literal["gpipe", "1f1b", "interleaved", "zero_bubble", "dualpipe", "circular"] = (
        "1f1b"
    )
    virtual_stages: int = 1
    # as many to each stage, or as the software deals them; or fewer to the first and the last
    layers: Literal["even", "by-cost"] = "even"
    # Of other software, remat "full": layers of the first stage (of each of its virtual stages)
    # that are computed again, None: all; and how many fewer each next stage computes again.
    remat_layers: int | None = None
    remat_fewer: float = 0.0
    # Of other software without sequence parallelism: each device of tensor sends its part of the
    # stream, and the next stage gathers them (arXiv 2104.04473, section 4.1).
    scatter: bool = False

    def __post_init__(self) -> None:
        if self.layers != "even" and self.virtual_stages > 1:
            raise InputError(
                f"pipeline.layers={self.layers!r} is for stages of one part each, and "
                f"virtual_stages is {self.virtual_stages}; leave one of them out"
            )
        check_range("virtual_stages", self.virtual_stages, 1)
        check_range("remat_layers", self.remat_layers or 1, 1)
        check_range("remat_fewer", self.remat_fewer, 0)
        if self.remat_layers == 0 or (self.remat_fewer and self.remat_layers is None):
            raise InputError(
                "pipeline.remat_layers is of a stage, at least 1 (remat none computes none again), "
                "and pipeline.remat_fewer says how many of them a later stage leaves out"
            )


@dataclass(frozen=True)
class Context:
    """How attention sees the whole sequence when it is sharded."""

    method: Literal["ring", "all-gather"] = "ring"


@dataclass(frozen=True)
class Overlap:
    """What runs beside compute in other software; None: as its recipes have it.

    By Megatron's names: --tp-comm-overlap; --overlap-grad-reduce with --overlap-param-gather;
    --overlap-p2p-communication; --overlap-moe-expert-parallel-comm.
    """

    tensor: bool | None = None
    weights: bool | None = None
    pipeline: bool | None = None
    experts: bool | None = None  # the exchange of tokens, beside the layers of another microbatch


@dataclass(frozen=True)
class Precision:
    """Number formats."""

    compute: Dtype = "bf16"
    parameters: Dtype = "fp32"
    gradients: Dtype = "fp32"
    reduce: Literal["bf16", "fp32"] | None = None  # gradients over devices; bf16: as `compute`, if
    # wider; None: as the software's recipes have it (analytic/data/software.toml)
    gather: Literal["bf16", "fp8"] | None = (
        None  # weights over devices for products in fp8; None: so
    )
    # tokens sent to experts, and gradients of their results, for products in fp8
    dispatch: Literal["bf16", "fp8"] = "bf16"
    optimizer_state: Literal["fp32", "bf16"] = "fp32"
    stochastic_rounding: bool = False  # of optimiser state in bf16
    frozen: Literal["fp32", "bf16"] = "fp32"  # matrices that are not trained, as they are stored

    @property
    def between(self) -> Dtype:
        """Format of what matrix products take and make, and devices exchange: fp8's is bf16."""
        return "bf16" if self.compute == "fp8" else self.compute


@dataclass(frozen=True)
class Group:
    """What the optimizer does otherwise with parameters of some names; None: as with the rest."""

    learning_rate: float = 1.0  # times that of the run
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, ("learning_rate", "weight_decay"), 0)


@dataclass(frozen=True)
class Loss:
    """What is minimised in place of cross-entropy, against a model that stays as it is.

    dpo            pairs of answers, against the run's own first weights: -log sigmoid(beta (r of
                   the chosen - r of the rejected)), r = log p - log p of the reference
                   (Rafailov et al. 2023, arXiv 2305.18290, equation 7)
    distillation   weight T^2 KL(teacher || model) + (1 - weight) cross-entropy, KL at temperature T
                   (Hinton et al. 2015, arXiv 1503.02531, section 2)
    """

    kind: Literal["dpo", "distillation"]
    beta: float = 0.1  # of dpo
    teacher: str | None = None  # of distillation: a run folder or Hugging Face's; priced: a recipe
    teacher_model: ModelConfig | None = None  # in run.json, so that the folder may go; None: read
    temperature: float = 1.0
    weight: float = 0.5

    def __post_init__(self) -> None:
        if not (self.beta > 0 and self.temperature > 0 and 0 <= self.weight <= 1):
            raise InputError(
                f"train.loss: beta={self.beta} and temperature={self.temperature} must be above 0, "
                f"weight={self.weight} from 0 to 1"
            )
        if (self.teacher is None) != (self.kind == "dpo"):
            raise InputError(
                "train.loss: distillation needs teacher, the folder of a run or of Hugging Face's "
                "files; dpo compares with the run's own first weights and has none"
            )


@dataclass(frozen=True)
class Train:
    """The settings of the trainer."""

    steps: int = 1000
    learning_rate: float = 3e-4  # peak, after warm-up
    warmup_steps: int = 100
    schedule: Literal["cosine", "linear", "constant", "wsd"] = "cosine"  # wsd: stable, then decay
    final_rate: float | None = None  # share of the peak at the end; None: 0.1, constant has none
    decay_steps: int | None = None  # last steps of "wsd"; None: a tenth of all
    weight_decay: float = 0.1
    clip_norm: float = 1.0  # global gradient norm; 0 switches clipping off
    z_loss: float = 0.0  # weight of the squared normaliser of the logits in the loss
    # Settings of the optimiser, None: its own default; who has which: optimizers.DEFAULTS.
    beta_1: float | None = None
    beta_2: float | None = None
    epsilon: float | None = None
    momentum: float | None = None
    decay_rate: float | None = None
    seed: int = 0
    data: str | dict[str, float] = (
        "stdlib"  # see scaling.training.data.sources; or shares by source
    )
    tokenizer: str | None = None  # None: bytes; a tokenizer.json, its folder or Hugging Face name
    documents: Literal["joined", "packed"] = "joined"  # packed: none sees another; masked losses
    checkpoint_every: int | None = None  # steps, beside those by time; 0: only at the end
    checkpoint_minutes: float | None = None  # 0: never by time; None: 10, more where saves are slow
    keep_checkpoints: int = 2
    watchdog_minutes: float | None = None  # a step may take; 0: for ever; None: 5, or 10 medians
    eval_every: int = 0  # steps; 0: never
    eval_batches: int = 4
    log_layer_norms: bool = False  # the gradient norm of each layer, in metrics.jsonl
    pgle_runs: int = 0  # steps that jax profiles before it compiles anew by their times (AutoPGLE)
    lora: Lora | None = None  # adapters, which alone are trained, and what `trainable` adds
    freeze: tuple[str, ...] = ()  # patterns of arrays that are not trained: "embedding/*"
    trainable: tuple[str, ...] = ()  # or of those that are, and no others
    ema: float | None = None  # decay of a running mean of the trained parameters; None: none

    xla: dict[str, bool | int | str] = field(default_factory=dict, hash=False)  # its options
    deterministic: bool = False  # on GPUs: the same bits at every start, for speed
    groups: dict[str, Group] = field(default_factory=dict, hash=False)  # by pattern of names
    loss: Loss | None = None  # None: cross-entropy

    @property
    def trains_all(self) -> bool:
        """True if no parameter is frozen."""
        return self.lora is None and not self.freeze and not self.trainable

    @property
    def pairs(self) -> bool:
        """True if every two sequences are a chosen and a rejected answer."""
        return self.loss is not None and self.loss.kind == "dpo"


@dataclass(frozen=True)
class ClusterChoice:
    """The cluster a run is meant for."""

    name: str | None = None
    nodes: int = 1
    overrides: dict[str, float] = field(default_factory=dict)
    file: str | None = None
    measured: tuple[MeasuredCall, ...] = ()  # what collectives took there

    def __post_init__(self) -> None:
        check_range("nodes", self.nodes, 1)
        if (self.name is None) == (self.file is None):
            raise InputError("give either name (of the catalogue) or file (a TOML file)")


@dataclass(frozen=True)
class Run:
    """A full description of one run. `mesh=None`: all devices as fsdp.

    >>> import scaling as sc
    >>> from dataclasses import replace
    >>> run = replace(sc.load_run("tiny"), mesh=sc.MeshShape(fsdp=8), remat="full")
    >>> run.name, run.mesh.devices
    ('tiny', 8)
    """

    name: str
    model: ModelConfig
    batch: Batch
    mesh: MeshShape | None = None
    sharding: Sharding = Sharding()
    pipeline: Pipeline = Pipeline()
    context: Context = Context()
    precision: Precision = Precision()
    overlap: Overlap = Overlap()
    optimizer: str = "adamw"
    remat: SavedTensors | str = (
        "none"  # what is kept for the backward pass, `models.accounting.remat`
    )
    # What remat "selective" of other software computes again (Megatron: --recompute-modules)
    recompute: tuple[Module, ...] = ("core_attn",)
    attention: Literal["flash", "unfused"] = "flash"
    # Of other software: rows of each expert by NCCL, or each token once to a node (DeepEP)
    dispatcher: Literal["alltoall", "deepep"] = "alltoall"
    dropout: float = 0.0
    train: Train = Train()
    cluster: ClusterChoice | None = None
    software: str = OURS
    device_order: tuple[str, ...] = ()  # outermost axis first; (): the mesh's, or `AXES`

    def __post_init__(self) -> None:
        check_range("dropout", self.dropout, 0, 1)
        check_remat(self.remat, self.model)
        if self.remat == SavedTensors():
            object.__setattr__(self, "remat", "full")
        if self.software != OURS and self.remat not in (*POLICIES, AUTO):
            raise InputError(
                f"remat '{self.remat}' names tensors of software 'jax', and software is "
                f"{self.software!r}; use none, selective, full or auto"
            )
        if self.recompute != ("core_attn",) and self.software == OURS:
            raise InputError(
                f"recompute={[*self.recompute]} names modules of other software; leave it out, and "
                "list in remat the tensors that software 'jax' keeps"
            )
        sent = self.precision.gather, self.precision.dispatch, self.dispatcher
        if self.software == OURS and (self.overlap != Overlap() or {"fp8", "deepep"} & {*sent}):
            raise InputError(
                "overlap, dispatcher='deepep', and 'fp8' of precision.gather and dispatch describe "
                "other software; XLA decides what runs beside compute in software 'jax': leave "
                "them out"
            )
        if self.software == OURS and self.pipeline.scatter:
            raise InputError(
                "pipeline.scatter is of other software; leave it out: tokens of software 'jax' are "
                "shared out over tensor already (sharding.sequence_parallel)"
            )
        if self.software == OURS and self.pipeline.remat_layers is not None:
            raise InputError(
                f"pipeline.remat_layers={self.pipeline.remat_layers}: software 'jax' runs one "
                "program in all stages, whose loop computes every layer again or none; leave it "
                "out, or price software whose stages have programs of their own, such as megatron"
            )
        order = self.device_order or AXES
        order = self.mesh.device_order if self.mesh else MeshShape(device_order=order).device_order
        object.__setattr__(self, "device_order", order)
