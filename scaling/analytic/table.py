"""Communication that a step needs by the mathematics of its parallelism: the table that the
compiled program is compared with.

    b   sequences of one microbatch on one device     M   microbatches     L   layers
    X   b x seq_len / context x d_model: the residual stream, not cut over tensor
    KV  b x seq_len / context x 2 kv_heads / tensor x head_dim: keys and values of one device
    v   vectors of one layer: norms, biases
    W   matrices of one layer, E   token table or output head, P   position table: elements that
        one device multiplies by, so cut over tensor (P never), whole over the shards
    shards   fsdp, expert and context together: the axes that shard weights (`meshes.rules`)

Bytes per step and device as nccl-tests counts them: elements in compute format unless stated.

    over     kind             elements               why
    shards   all-gather       M (2 W L + 2 E + P)    a matrix where it is multiplied, forward and
                                                     again backward; the head once, because its
                                                     backward pass follows at once; looking up has
                                                     no products, so nothing to gather backward
    shards   reduce-scatter   M (W L + 2 E + P)      each gradient where it arises: a device has
                                                     room for shards only
    data     all-reduce       (W L + 2 E + P)/shards the shard of each gradient, once per step;
                                                     float32 if it is a sum of microbatches
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
  the ring ends where no device can see further (`scaling.models.attention_kernels.zigzag`).
- Without sequence parallelism X is not cut. Its sums over tensor are all-reduces: 2 L forward, 2 L
  backward, L to recompute, one each for embedding and head. The transpose of a sum moves nothing.
- A loss in chunks (`scaling.models.accounting.logits`) moves its statistics in as many calls.
- Expert or context that does not divide d_model copies weights, as data does.
- A vocabulary that tensor does not divide stays whole: embedding and head move no X and no
  statistics. With sequence parallelism each device then meets its own tokens, and the shards of
  the tables' gradients are summed over tensor as well; so are those of P, always.
- A tied table is gathered, and its gradient scattered, for embedding and head apart: they are
  half a step from each other. The shards of its two gradients are added before they are summed
  over data.
- Vectors that tensor cuts (biases of q, k, v, up, gate) are not summed over it. The norms of q and
  k are, because their heads are cut.
- Latent attention (models/latent_attention.py) gathers latents in place of X, with direct queries
  beside it, and scatters their gradient. The matrices that make them are whole over tensor and meet
  a sequence-parallel stream, so the shards of their gradients are summed over tensor as well; so
  are the norms of latents.
- Layers with experts: `scaling.analytic.experts`. ZeRO stage 1, which gathers weights once per
  step: `scaling.analytic.weights`.
- Muon deals whole matrices out and back, Adafactor sums means of rows and columns
  (`scaling.analytic.optimizer`); AdamW and Lion move nothing.

A pipeline, of S stages, R rounds (pipeline.virtual_stages) and T = M R + S - 1 ticks; X here cut
over tensor too, if sequence-parallel:

    over    kind             elements    why
    stage   permute          2 T X       one hop in each tick: a stage's output to the next stage,
                                         and its gradient back
    stage   reduce-scatter   M X         what the last stage has made is shared out over all, for
                                         the output head
    stage   all-gather       M X         the gradient of that

In the table's other lines a pipeline changes

- M L, the times that a device passes through a layer, to T L / (S R): in bubble ticks as well;
- the sums over tensor of gradients of matrices that make latents, to one per pass as well;
- the layers whose gradients a device sums over data, L, to L / S; in float32, a sum over ticks;
- tables and final norm meet tokens that are cut over stage too (or copied for it), so their
  gradients are summed over data and stage;
- the tokens of the head and of the loss, to those of one stage, 1 / S;
- the token table and the position table are gathered M + S times to look up tokens: ahead of the
  first tick, and in all S - 1 + M in which a microbatch may come in or leave.

Axes of size 1 move nothing. Calls below 64 KiB (the gradient norm, the scalars of the loss, the
vectors of small models) cost latency rather than bandwidth and are left out.
"""

from dataclasses import replace

from scaling.analytic.activations import (
    keys_and_values,
    loss_statistics,
    pipeline_transfers,
    residual_stream,
    vector_gradients,
)
from scaling.analytic.adapters import adapter_transfers
from scaling.analytic.experts import expert_transfers
from scaling.analytic.optimizer import optimizer_transfers
from scaling.analytic.reference import reference_transfers
from scaling.analytic.step import StepSizes, Transfer, step_sizes
from scaling.analytic.weights import weight_transfers
from scaling.meshes.shape import MeshShape
from scaling.run import Run
from scaling.run.parallelism.checks import check_trainable
from scaling.run.parallelism.rules import rules_for

SMALLEST = 64 * 1024  # bytes of one call
PARTS = (
    weight_transfers,
    residual_stream,
    keys_and_values,
    loss_statistics,
    vector_gradients,
    expert_transfers,
    pipeline_transfers,
    optimizer_transfers,
    adapter_transfers,
)
OF_WEIGHTS = weight_transfers, vector_gradients  # whose sums are of gradients of parameters

Table = dict[tuple[str, str], float]  # (axes joined by +, kind) -> bytes per step and device


def expected_bytes(run: Run, shape: MeshShape, smallest: float = SMALLEST) -> Table:
    """Bytes per step and device that `run` needs to move on the mesh `shape`, as nccl-tests counts.

    Only over axes of more than one device, in calls of at least `smallest` bytes.

    Raises:
        InputError: what the trainer cannot run, sizes that the mesh does not divide.
    """
    table: Table = {}
    for line in expected_transfers(run, shape):
        if line.axes and line.bytes >= smallest and line.bytes * line.calls:
            key = line.axes, line.kind
            table[key] = table.get(key, 0.0) + float(line.bytes * line.calls)
    return table


def expected_transfers(run: Run, shape: MeshShape) -> tuple[Transfer, ...]:
    """Every transfer of the table, those that move nothing included; see `expected_bytes`."""
    check_trainable(run, shape)
    rules_for(run, shape)
    return transfers(step_sizes(run, shape))


def transfers(step: StepSizes) -> tuple[Transfer, ...]:
    """The same of any software, and of several configurations of a mesh."""
    frozen = not step.trains_all
    own = (
        replace(line, calls=0)
        if frozen and part in OF_WEIGHTS and line.kind != "all-gather"  # those are gathered anyway
        else line
        for part in PARTS
        for line in part(step)
    )
    return (*own, *reference_transfers(step, transfers))
