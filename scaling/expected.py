"""What a step has to move between devices, by the mathematics of its parallelism: the table that
the compiled program is held against.

    b   sequences of one microbatch on one device     M   microbatches     L   layers
    X   b x seq_len / context x d_model: the residual stream, not cut over tensor
    KV  b x seq_len / context x 2 kv_heads / tensor x head_dim: keys and values of one device
    v   vectors of one layer: norms, biases
    W   matrices of one layer, E   token table or output head, P   position table: elements that
        one device multiplies by, so cut over tensor (P never), whole over fsdp

Bytes per step and device as nccl-tests counts them: elements in compute format unless stated.

    over     kind             elements               why
    fsdp     all-gather       M (2 W L + 2 E + P)    a matrix where it is multiplied, forward and
                                                     again backward; the head once, because its
                                                     backward pass follows at once; looking up has
                                                     no products, so nothing to gather backward
    fsdp     reduce-scatter   M (W L + 2 E + P)      each gradient where it arises: a device has
                                                     room for shards only
    data     all-reduce       (W L + 2 E + P)/fsdp   the shard of each gradient, once per step;
                                                     float32 if it is a sum of microbatches; over
                                                     data, expert and context together
    tensor   all-gather       M (4 L + 2) X          inputs of attention, MLP and head; gradients
                                                     of outputs of attention, MLP and embedding
    tensor   reduce-scatter   M (4 L + 2) X          the transpose of each of these
    tensor   all-reduce       M 3 b seq_len/context  float32: maximum, normaliser and target
    context  all-gather       M 2 L context KV       method all-gather: all keys and values,
                                                     forward and again backward
    context  reduce-scatter   M L context KV         the gradients of these
    context  permute          M 3 (context - 1) L KV method ring: keys and values to the next
                                                     device, forward and again backward; their
                                                     gradients along with them
    tokens   all-reduce       M v L                  float32: replicated parameters, over all axes
                                                     that cut the tokens they meet

Variations:

- A layer that is recomputed (remat "selective", "full") gathers X twice more, for attention and
  MLP, and scatters it once more: the second norm needs the attention's output. Its weights are not
  gathered a third time, because its backward pass follows at once.
- Attention that is recomputed (remat "full") goes around the ring once more, but for the first
  step, whose keys serve the backward pass as well. So do gathered ones: there is no third gather.
- With a sliding window only the last window - 1 rows of each of a device's two chunks are sent, and
  the ring ends where no device can see further (`meshes.zigzag`).
- Without sequence parallelism X is not cut. Its sums over tensor are all-reduces: 2 L forward, 2 L
  backward, L to recompute, one each for embedding and head. The transpose of a sum moves nothing.
- A vocabulary that tensor does not divide stays whole: embedding and head move no X and no
  statistics. With sequence parallelism each device then meets its own tokens, and the shards of
  the tables' gradients are summed over tensor as well; so are those of P, always.
- A tied table is gathered, and its gradient scattered, for embedding and head apart: they are
  half a step from each other. The shards of its two gradients are added before they are summed
  over data.
- Vectors that tensor cuts (biases of q, k, v, up, gate) are not summed over it. The norms of q and
  k are, because their heads are cut.
- Latent attention (models/latent.py) gathers latents in place of X, with direct queries beside it,
  and scatters their gradient. The matrices that make them are whole over tensor and meet a
  sequence-parallel stream, so the shards of their gradients are summed over tensor as well; so are
  the norms of latents.
- Layers with experts: scaling/expected_experts.py. A pipeline: scaling/expected_stages.py. ZeRO
  stages 1 and 2, which gather weights once per step: scaling/expected_zero.py.

- Muon deals whole matrices out and back, Adafactor sums means of rows and columns
  (`scaling.expected_optimizer`); AdamW and Lion move nothing.

Axes of size 1 move nothing. Calls below 64 KiB (the gradient norm, the scalars of the loss, the
vectors of small models) cost latency rather than bandwidth and are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from meshes.rules import REPLICAS
from meshes.shape import MeshShape
from meshes.ticks import Ticks
from meshes.zigzag import seen_rows, walks, window_reach
from models.accounting.activations import BYTES
from models.accounting.context import exchanged_width
from models.accounting.matrices import (
    attention_matrices,
    compressing_matrices,
    gathered_width,
    mlp_matrices,
    n_dense_layers,
)
from models.config import ModelConfig, with_positions
from scaling.expected_experts import expert_lines
from scaling.expected_optimizer import optimizer_calls
from scaling.expected_stages import matrices_again, stage_lines, sums_again
from scaling.expected_zero import held_lines, holds
from scaling.layouts import is_sequence_parallel, rules_for
from scaling.program import CollectiveKind
from scaling.run import Run
from scaling.stages import recomputes, ticks_of
from scaling.train.checks import check_trainable

SMALLEST = 64 * 1024  # bytes of one call
FLOAT32 = BYTES["fp32"]
MATRICES = "matrices of a layer"
TABLES = "token table and head"  # `what` of their lines
KEYS = "keys and values"
LATENT = "matrices of a layer that make latents"

Table = dict[tuple[str, str], float]  # (axes joined by +, kind) -> bytes per step and device


@dataclass(frozen=True)
class Line:
    """One line of the table: equal calls."""

    axes: str  # of more than one device, joined by + in mesh order; "": moves nothing
    kind: CollectiveKind
    bytes: float  # of one call; what is due at the same place travels together
    calls: float  # per step
    what: str


def expected(run: Run, shape: MeshShape, smallest: float = SMALLEST) -> Table:
    """Bytes per step and device that `run` has to move on the mesh `shape`.

    Args:
        run: a run that the trainer can train.
        shape: its mesh.
        smallest: bytes of a call below which it is left out.

    Returns:
        (axes joined by "+" in mesh order, kind of collective) -> bytes as nccl-tests counts them;
        only axes of more than one device.

    Raises:
        InputError: what the trainer cannot run, sizes that the mesh does not divide.
    """
    table: Table = {}
    for line in expected_lines(run, shape):
        if line.axes and line.bytes >= smallest and line.bytes * line.calls:
            key = line.axes, line.kind
            table[key] = table.get(key, 0.0) + line.bytes * line.calls
    return table


def expected_lines(run: Run, shape: MeshShape) -> tuple[Line, ...]:
    """The table line by line, those that move nothing included; see `expected`."""
    check_trainable(run, shape)
    step = _Step(
        run,
        shape,
        with_positions(run.model, run.batch.seq_len),
        is_sequence_parallel(run, shape) and shape.tensor > 1,
        bool(rules_for(run, shape).axes("vocab")),
    )
    parts = _weights, _stream, _keys, _statistics, _vectors
    lines = tuple(line for part in parts for line in part(step))
    others = (*expert_lines(step), *stage_lines(step), *optimizer_calls(run, shape, step.config))
    return (*lines, *(Line(*fields) for fields in others))


@dataclass(frozen=True)
class _Step:
    """What the lines are made from."""

    run: Run
    shape: MeshShape
    config: ModelConfig
    sequence_parallel: bool
    cut_vocabulary: bool  # over tensor

    @property
    def itemsize(self) -> int:
        """Bytes of an element in compute format."""
        return BYTES[self.run.precision.between]

    @property
    def microbatches(self) -> int:
        """M of the table."""
        return self.run.batch.microbatches

    @property
    def ticks(self) -> Ticks:
        """Of a pipeline; one for each microbatch without."""
        return ticks_of(self.run, self.shape)

    @property
    def again(self) -> int:
        """How often the backward pass computes a whole tick of a pipeline again: 0 or 1."""
        return int(self.shape.stage > 1 and recomputes(self.run))

    def passes(self, layers: int) -> float:
        """Times that a device passes through one of `layers` layers, M L of the table."""
        return self.ticks.total * layers / (self.ticks.stages * self.ticks.rounds)

    @property
    def tokens(self) -> float:
        """b seq_len / context: of one microbatch on one device, not cut over tensor."""
        parts = self.shape.batch_shards * self.shape.context
        return self.run.batch.tokens / self.microbatches / parts

    def over(self, *axes: str) -> str:
        """Those of `axes` that have more than one device, in mesh order."""
        return "+".join(a for a, size in self.shape.sizes.items() if a in axes and size > 1)


def _weights(step: _Step) -> Iterator[Line]:
    """Matrices and tables: gathered, their gradients scattered and summed."""
    layers, M = n_dense_layers(step.config), step.microbatches
    matrices, latent, vocabulary, positions = _elements(step)
    copies = 1 if step.config.tied_embeddings else 2
    parallel = step.sequence_parallel
    own_tokens = parallel and not step.cut_vocabulary
    passes, stored = step.passes(layers), layers / step.shape.stage
    tables, looked_up = (*REPLICAS, "stage"), 1 if step.shape.stage > 1 else M
    yield Line(step.over("fsdp"), "all-gather", *matrices_again(step, matrices + latent), MATRICES)
    for what, elements, gathers, scatters, sums, replicas, over_tensor in (
        (MATRICES, matrices, 2 * passes, passes, stored, REPLICAS, 0),
        (LATENT, latent, 2 * passes, passes, stored, REPLICAS, parallel * passes),
        (TABLES, vocabulary, M + looked_up, 2 * M, copies, tables, own_tokens * M * copies),
        ("position table", positions, looked_up, M, 1, tables, parallel * M),
    ):
        size, shard = elements * step.itemsize, elements / step.shape.fsdp
        if holds(step):
            held = held_lines(step, what, elements, sums, scatters, bool(over_tensor))
            yield from (Line(*fields) for fields in held)
            yield from _shards(step, what, shard, sums, replicas, 0)
            continue
        yield Line(step.over("fsdp"), "all-gather", size, gathers, what)
        yield Line(step.over("fsdp"), "reduce-scatter", size, scatters, what)
        yield from _shards(step, what, shard, sums, replicas, over_tensor)


def _shards(
    step: _Step,
    what: str,
    elements: float,
    stored: float,
    replicas: tuple[str, ...],
    over_tensor: float,
) -> Iterator[Line]:
    """Shards of gradients, summed over replicas once per step; `over_tensor` times over tensor."""
    size = elements * step.itemsize
    if step.microbatches == 1 and step.shape.stage == 1:
        axes = step.over(*replicas, "tensor") if over_tensor else step.over(*replicas)
        yield Line(axes, "all-reduce", size, stored, what)
        return
    yield Line(step.over(*replicas), "all-reduce", elements * FLOAT32, stored, what)
    if over_tensor:
        yield Line(step.over("tensor"), "all-reduce", size, over_tensor, what)


def _stream(step: _Step) -> Iterator[Line]:
    """The residual stream, gathered and summed over tensor; what the attention takes by itself."""
    passes, M = step.passes(step.config.n_layers), step.microbatches
    again = 1 if step.run.remat != "none" else 0
    ends = M if step.cut_vocabulary else 0  # embedding and head
    size = step.tokens * step.config.d_model * step.itemsize
    taken = gathered_width(step.config)
    own = 1 if taken == step.config.d_model else 0  # the attention takes the stream itself
    summed = 3 + own + again + sums_again(step)  # in a layer
    gathered = 3 + own + (1 + own) * (again + step.again)
    latents = (1 - own) * step.tokens * taken * step.itemsize
    lines: tuple[tuple[str, float, float, float], ...] = (
        ("residual stream", size, passes * summed, passes * gathered),
        ("latents", latents, passes, passes * (1 + step.again)),
        ("latents again", latents * (1 - _kept(step) / taken), 0, passes * again),
        ("stream of the embedding", size, ends, ends),
        ("stream of the head", size / step.shape.stage, ends, ends),
    )
    for what, bytes_, sums, gathers in lines:
        kinds: dict[CollectiveKind, float] = {"all-reduce": sums}
        if step.sequence_parallel:
            kinds = {"reduce-scatter": sums, "all-gather": gathers}
        for kind, calls in kinds.items() if bytes_ else ():
            yield Line(step.over("tensor"), kind, bytes_, calls, what)


def _kept(step: _Step) -> int:
    """Of a token's latents those that are not gathered to recompute a layer: the rotated part of
    its keys, which are kept."""
    mla = step.config.mla
    return mla.qk_rope_head_dim if mla and step.run.remat == "selective" else 0


def _keys(step: _Step) -> Iterator[Line]:
    """Keys and values and their gradients, around `context`."""
    run, config, C = step.run, step.config, step.shape.context
    chunk = run.batch.seq_len // (2 * C)
    ways = walks(C, window_reach(config.sliding_window, chunk))
    hops = sum(map(len, ways))
    rows = step.tokens * seen_rows(config.sliding_window, chunk) / chunk
    kv = rows * exchanged_width(config) / step.shape.tensor * step.itemsize
    calls, axes = step.passes(config.n_layers), step.over("context")
    if run.context.method == "ring":
        again = hops - sum(map(bool, ways)) if run.remat == "full" else 0
        yield Line(axes, "permute", kv, calls * ((3 + step.again) * hops + again), KEYS)
    elif hops:
        yield Line(axes, "all-gather", C * kv, calls * (2 + step.again), KEYS)
        yield Line(axes, "reduce-scatter", C * kv, calls, KEYS)


def _statistics(step: _Step) -> Iterator[Line]:
    """Of the loss, each one float32 per token: maximum, normaliser, target."""
    calls = 3 * step.microbatches if step.cut_vocabulary else 0
    size = step.tokens / step.shape.stage * FLOAT32
    yield Line(step.over("tensor"), "all-reduce", size, calls, "statistics of the loss")


def _vectors(step: _Step) -> Iterator[Line]:
    """Gradients of norms and biases, float32, in each microbatch; those of a layer together."""
    config, M = step.config, step.microbatches
    norm = config.d_model * (2 if config.norm == "layernorm" and config.bias else 1)
    written = 2 * config.d_model if config.bias else 0  # biases of o and down
    heads = 2 * config.head_dim if config.qk_norm else 0
    cut = _inner_outputs(config) / step.shape.tensor if config.bias else 0
    cut_by = "data", "fsdp", "expert", "context"
    tokens, everywhere = step.over(*cut_by), step.over(*cut_by, "tensor")
    met = everywhere if step.sequence_parallel else tokens
    latents = (config.mla.q_lora_rank or 0) + config.mla.kv_lora_rank if config.mla else 0
    layer: dict[str, float] = {}
    for axes, elements in ((met, 2 * norm + written + latents), (everywhere, heads), (tokens, cut)):
        layer[axes] = layer.get(axes, 0) + elements * FLOAT32
    for axes, size in layer.items():
        passes = step.passes(config.n_layers)
        yield Line(axes, "all-reduce", size, passes, "vectors of a layer")
    met = step.over(*cut_by, "stage", *(("tensor",) if step.sequence_parallel else ()))
    yield Line(met, "all-reduce", norm * FLOAT32, M, "final norm")


def _elements(step: _Step) -> tuple[float, float, float, float]:
    """W of the table without the matrices that make latents, these, E and P."""
    config, tensor = step.config, step.shape.tensor
    count = lambda matrices: sum(inputs * outputs for inputs, outputs in matrices.values())
    latent = count(compressing_matrices(config))
    every = count(attention_matrices(config) | mlp_matrices(config, config.d_ff))
    layer = (every - latent) / tensor
    vocabulary = config.vocab_size * config.d_model / (tensor if step.cut_vocabulary else 1)
    positions = config.max_positions * config.d_model if config.positions == "learned" else 0
    return layer, latent, vocabulary, positions


def _inner_outputs(config: ModelConfig) -> int:
    """Outputs of the matrices that do not write into the residual stream: tensor cuts them."""
    matrices = attention_matrices(config) | mlp_matrices(config, config.d_ff)
    return sum(outputs for name, (_, outputs) in matrices.items() if name not in ("o", "down"))
