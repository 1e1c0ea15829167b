"""A training step as a test case: compiled once, run on fake devices, read as a Program and priced.

    case = Case("data=2,fsdp=2,tensor=2", "llama", remat="full", microbatches=2)
    assert_equals_one_device(case)    loss, every metric, gradient and parameter after two steps
    discrepancies(case)               collectives and FLOPs against the table derived by hand

The program under test is the trainer's own jitted step. Gradients are read from the optimiser's
first moment, which after one step from zero is (1 - beta_1) times the clipped gradient.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache, partial
from typing import Any

import chex
import jax
import numpy as np

from scaling.analytic.table import expected_bytes
from scaling.comparing.audit import SUMS, audit
from scaling.comparing.discrepancy import PRODUCTS, Discrepancy
from scaling.meshes import catalog
from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import AXES, MeshShape, parse_mesh
from scaling.models.accounting.remat import Remat
from scaling.models.attention_kernels.zigzag import zigzag_order
from scaling.models.config import Mla, ModelConfig, Moe, Yarn
from scaling.models.execution import Execution
from scaling.models.lora import Lora
from scaling.profiles.io import ideal
from scaling.run import Batch, Context, Loss, Pipeline, Precision, Run, Sharding, Train
from scaling.run.parallelism.pipeline import pipeline_schedule
from scaling.run.parallelism.rules import rules_for
from scaling.simulate.pipeline_bubble import mark_bubbles
from scaling.simulate.step import Priced, price, running_collectives
from scaling.training.execution import execution_for
from scaling.training.program import program_of_run
from scaling.training.running import program_of
from scaling.training.step import Tokens, TrainState, jitted_step
from scaling.training.step import abstract_arguments as step_arguments
from scaling.training.weights.naming import (
    STACKS,
    from_dict,
    layer_order_of,
    leaf_names,
    to_dict,
)
from tests.models.one_device import GEMMA_KIND, LLAMA4_CHOICE, LLAMA4_KIND, OSS_KIND

SEQUENCES, SEQ_LEN = 16, 32
STEPS = 2
RTOL = 1e-4
ATOL_OF_LARGEST = 1e-5  # for entries that cancel out: of the largest of the same array
SMALLEST = 2048  # bytes of a call; below are norms, biases and statistics of the loss
VECTORS = 1.2  # norms, biases and scalars that may be summed in one call, over norms and biases
# Epsilon: AdamW divides a gradient by its own size, so without it rounding of the smallest shows.
TRAIN = Train(steps=10, learning_rate=1e-2, warmup_steps=0, epsilon=1e-6)
ORDERS = {"default": MeshShape().device_order, "reversed": AXES[::-1]}
H100 = catalog.load("dgx-h100")

MOE = Moe(8, 2, 32, aux_loss=0.1, z_loss=0.01)
DEEPSEEK = Moe(
    8, 3, 32, n_shared_experts=1, gate="sigmoid", routed_scaling=2.5, selection_bias=True,
    bias_update_rate=0.01, n_groups=4, groups_per_token=2, aux_loss=0.1, z_loss=0.01,
)  # fmt: skip
LATENT = Mla(32, 32, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=12)
_toy = partial(ModelConfig, 128, d_model=64, n_layers=4, n_heads=8, d_ff=128)
_many_heads = partial(_toy, n_heads=16, n_kv_heads=8, head_dim=8)
MODELS = {
    "llama": _many_heads(),
    "gpt": _toy(
        mlp="gelu",
        norm="layernorm",
        positions="learned",
        max_positions=SEQ_LEN + 8,
        bias=True,
        tied_embeddings=True,
    ),
    "qwen": _many_heads(qk_norm=True, sliding_window=7, tied_embeddings=True),
    "window": _many_heads(sliding_window=7),
    # A vocabulary that no mesh axis divides.
    "odd": replace(_many_heads(qk_norm=True, bias=True, sliding_window=7), vocab_size=127),
    "latent": _toy(mla=LATENT, yarn=Yarn(4.0, 8, mscale_all_dim=1.0)),
    "direct": _toy(mla=replace(LATENT, q_lora_rank=None), sliding_window=7),
    "gemma": _toy(n_kv_heads=4, **GEMMA_KIND),
    # OLMo 2's blocks with Granite's multipliers.
    "olmo": _toy(
        qk_norm=True,
        qk_norm_over="projection",
        norms="after",
        rotated=0.5,
        embedding_factor=3.0,
        residual_factor=0.5,
        logit_divisor=2.0,
    ),
    "mixtral": _toy(moe=MOE),
    "gpt-oss": _toy(n_kv_heads=4, moe=MOE, **OSS_KIND),
    "llama-4": _toy(n_kv_heads=4, moe=replace(MOE, **LLAMA4_CHOICE), **LLAMA4_KIND),
    "plain experts": _toy(mlp="gelu", positions="none", moe=MOE),
    "padded": _toy(moe=replace(MOE, capacity_factor=4.0)),  # room for every token
    "balanced": _toy(moe=DEEPSEEK, qk_norm=True, sliding_window=7),
    "deepseek": _toy(moe=replace(DEEPSEEK, first_dense_layers=1)),
    "deepseek-v3": _toy(mla=LATENT, moe=DEEPSEEK),
    # Latents that fewer axes divide than d_model.
    "short latents": _toy(mla=replace(LATENT, kv_lora_rank=12), moe=DEEPSEEK),
}
# Settings of the trainer by name.
TUNINGS: dict[str, dict[str, Any]] = {
    "all parameters": {},
    "layer norms": {"log_layer_norms": True},
    "running mean": {"ema": 0.9},
    "layer norms of a head": {"log_layer_norms": True, "trainable": ("head_VD",)},
    "adapters": {"lora": Lora(4, 8.0, ("query", "value", "out", "up", "gate", "down"))},
    "adapters of attention": {"lora": Lora(4, 8.0, ("query", "key", "out")), "ema": 0.9},
    "adapters of experts": {"lora": Lora(4, 8.0, ("query", "up", "gate", "down"))},
    "adapters of latents": {
        "lora": Lora(4, 8.0, ("query_a", "query_b", "kv_a", "kv_b", "out")),
        "trainable": ("*norm/scale",),
    },
    "final norm alone": {"trainable": ("final_norm/*",)},
    "frozen": {"freeze": ("embedding/*", "layers/mlp/*"), "ema": 0.9},
    "dpo": {"loss": Loss("dpo")},
    "dpo of adapters": {"loss": Loss("dpo"), "lora": Lora(4, 8.0, ("query", "down"))},
    "distillation": {"loss": Loss("distillation", teacher="teacher", temperature=2.0)},
}


@dataclass(frozen=True)
class Case:
    """One training step: a toy model on a mesh."""

    mesh: str = "data=1"
    model: str = "llama"
    remat: Remat = "none"
    microbatches: int = 1
    method: str = "ring"  # of attention over `context`
    schedule: str = "1f1b"
    zero: int = 3
    layers: int = 4
    sequence_parallel: bool | None = None
    device_order: str = "default"
    compute: str = "fp32"
    optimizer: str = "adamw"
    documents: str = "joined"
    tuning: str = "all parameters"
    reduce: str = "bf16"

    @property
    def alone(self) -> "Case":
        """The same step on one device. Balancing losses are means over a microbatch of experts."""
        microbatches = self.microbatches if self.run.model.moe else 1
        return Case(
            model=self.model,
            microbatches=microbatches,
            layers=self.layers,
            optimizer=self.optimizer,
            documents=self.documents,
            tuning=self.tuning,
        )

    @property
    def run(self) -> Run:
        train = replace(TRAIN, epsilon=None) if self.optimizer == "lion" else TRAIN
        return Run(
            "toy",
            replace(MODELS[self.model], n_layers=self.layers),
            Batch(SEQUENCES, SEQ_LEN, self.microbatches),
            parse_mesh(self.mesh, ORDERS[self.device_order]),
            Sharding(self.zero, self.sequence_parallel),
            pipeline=Pipeline(self.schedule, 2 if self.schedule == "interleaved" else 1),
            context=Context(self.method),
            precision=Precision(self.compute, reduce=self.reduce),
            optimizer=self.optimizer,
            remat=self.remat,
            train=replace(train, documents=self.documents, **TUNINGS[self.tuning]),
        )

    def __str__(self) -> str:
        """The mesh, and every choice that is not the default."""
        values = [(getattr(self, f.name), f.default) for f in fields(self)[1:]]
        return "-".join([self.mesh, *(f"{x}" for x, default in values if x != default)])


def execution_of(run: Run, platform: str = "cpu") -> Execution:
    """How the blocks of a run compute on a platform; "cuda" is a Hopper."""
    capability = {"cuda": 9.0}.get(platform, 0.0)
    return execution_for(run, rules_for(run, run.mesh), platform, capability)


def abstract_arguments(run: Run, platform: str = "cpu") -> tuple[TrainState, Tokens]:
    """Shapes and shardings of a step's arguments on the mesh that is set."""
    return step_arguments(run, execution_of(run, platform))


@lru_cache(maxsize=2)
def compiled(case: Case) -> jax.stages.Compiled:
    """The trainer's step of a case on fake CPU devices."""
    run = case.run
    with jax.set_mesh(host_mesh(run.mesh)):
        return jitted_step(run).lower(*abstract_arguments(run)).compile()


# --- numbers --------------------------------------------------------------------------------------


def placed(run: Run) -> tuple[TrainState, Tokens]:
    """A state before its first step, and tokens, on the mesh that is set.

    The same numbers on every mesh. Parameters are noise, so that no norm's scale is 1 and no bias
    0, where a wrong gradient could hide; the layers of a pipeline stand as it stores them.
    """
    like, cut = abstract_arguments(run)
    noise = np.random.default_rng(0)
    arrays = {}
    for name, leaf in to_dict(like).items():
        x = np.zeros(leaf.shape, leaf.dtype)
        if name.startswith(("params/", "reference/")):
            x = np.float32(0.1 * noise.standard_normal(leaf.shape) + name.endswith("scale"))
            x = _rows(name, x, partial(layer_order_of, run))
        arrays[name] = jax.device_put(x, leaf.sharding)
    text = noise.integers(run.model.vocab_size, size=(SEQUENCES, SEQ_LEN + 1)).astype(np.int32)
    zigzag = zigzag_order(SEQ_LEN, run.mesh.context)
    weights = noise.integers(3, size=(SEQUENCES, SEQ_LEN)).astype(np.float32)
    parts = Tokens(text[:, :-1], text[:, 1:], _documents(), weights)
    parts = Tokens(*(None if cut[i] is None else part for i, part in enumerate(parts)))
    parts = jax.tree.map(lambda part: part[:, zigzag].reshape(cut.inputs.shape), parts)
    return from_dict(like, arrays), jax.device_put(parts, cut.inputs.sharding)


def _documents() -> np.ndarray:
    """Segments: one to three documents in a sequence, and padding at the end of some."""
    ends = 1 + np.sort(np.random.default_rng(1).integers(SEQ_LEN, size=(SEQUENCES, 3)), axis=1)
    number = (np.arange(SEQ_LEN) >= ends[..., None]).sum(axis=1) + 1
    return np.where(number == 4, 0, number).astype(np.int32)


def in_layer_order(run: Run, tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree by name on the host, layers in the order in which they are applied."""
    back = lambda layers: np.argsort(layer_order_of(run, layers))
    arrays = zip(leaf_names(tree), map(np.asarray, jax.tree.leaves(tree)), strict=True)
    return {name: _rows(name, x, back) for name, x in arrays}


def _rows(name: str, x: np.ndarray, order: Callable[[int], np.ndarray]) -> np.ndarray:
    """The layers of a stack in another order; counters have none."""
    return x[order(len(x))] if STACKS & {*name.split("/")} and x.ndim else x


def stepped(case: Case, steps: int = STEPS) -> dict[str, dict[str, np.ndarray]]:
    """What the steps of a case compute: `metrics` of each step, `gradients` of the first one
    (AdamW only), `params` after the last."""
    run, step = case.run, compiled(case)
    found: dict[str, dict[str, np.ndarray]] = {"metrics": {}, "gradients": {}}
    with jax.set_mesh(host_mesh(run.mesh)):
        state, tokens = placed(run)
        like = [leaf.sharding for leaf in jax.tree.leaves(state)]
        for number in range(1, steps + 1):
            state, metrics = step(state, tokens)
            assert all(value.is_fully_replicated for value in metrics.values())  # any process reads
            found["metrics"] |= {f"{k} {number}": np.asarray(v) for k, v in metrics.items()}
            if number == 1:
                moments = in_layer_order(run, state.optimizer)
                found["gradients"] = {
                    name.partition("mu/")[2]: x for name, x in moments.items() if "/mu/" in name
                }
        both = zip(jax.tree.leaves(state), like, strict=True)
        assert all(x.sharding.is_equivalent_to(sharding, x.ndim) for x, sharding in both)
        assert int(state.step) == steps
        means = {f"{name} (mean)": x for name, x in in_layer_order(run, state.ema).items()}
        return found | {"params": in_layer_order(run, state.params) | means}


@cache
def stepped_alone(case: Case) -> dict[str, dict[str, np.ndarray]]:
    """The same on one device, computed once per process."""
    return stepped(case)


def assert_equals_one_device(case: Case) -> None:
    """The steps of a case compute what one device computes."""
    found, expected = stepped(case), stepped_alone(case.alone)
    largest = {name: np.abs(x).max() or 1.0 for name, x in expected["gradients"].items()}
    if case.run.model.positions != "rope" and case.run.model.bias:
        # Without rotation a key bias adds the same number to all scores of a query, which softmax
        # ignores: its gradient is zero, and only rounding remains of it.
        zero = [name for name in largest if "key_bias" in name]
        largest |= {name: largest[name.replace("key_bias_MK", "query_bias_NK")] for name in zero}
    scaled = lambda tree: {name: x / largest[name] for name, x in tree["gradients"].items()}
    close = chex.assert_trees_all_close
    close(scaled(found), scaled(expected), rtol=RTOL, atol=ATOL_OF_LARGEST)
    close(found["metrics"], expected["metrics"], rtol=RTOL, atol=1e-6)
    rate = case.run.train.learning_rate  # AdamW shows the rounding of the smallest gradients
    close(found["params"], expected["params"], rtol=RTOL, atol=1e-2 * STEPS * rate)


# --- the program ----------------------------------------------------------------------------------


def priced(case: Case) -> Priced:
    """The compiled step of a case, read and priced as if on ideal H100s, audited as the CPU's."""
    run, step = case.run, compiled(case)
    program = program_of(step, host_mesh(run.mesh), run.name)
    program = mark_bubbles(program)
    return replace(price(program, H100, ideal()), cluster=replace(H100, virtual_devices=True))


def discrepancies(case: Case) -> list[Discrepancy]:
    """What the compiled step moves and multiplies besides the table derived by hand.

    The CPU's compiler may run a sum over an axis and `tensor` as one over the axis, which the audit
    adds to the others over that axis, and one over `tensor`, which it does not compare.
    """
    run = case.run
    with jax.set_mesh(host_mesh(run.mesh)):
        params = to_dict(abstract_arguments(run)[0].params)
    vectors = [x for name, x in params.items() if name.endswith("scale") or "bias" in name]
    least = VECTORS * run.batch.microbatches * sum(4 * x.size for x in vectors)
    in_float32 = replace(run, precision=Precision("fp32"))
    apart: Counter = Counter()
    for (axes, kind), size in expected_bytes(in_float32, run.mesh, 0).items():
        if kind in SUMS and axes.endswith("+tensor"):
            apart[axes.removesuffix("+tensor")] += size
    found = audit(priced(case), run, run.mesh, SMALLEST)
    return [
        d
        for d in found
        if d.kind == PRODUCTS or not -least <= d.found - d.expected <= least + apart[d.axes]
    ]


def wide(case: Case) -> Run:
    """The run of a case in bf16, its model and batch widened."""
    run, toy = case.run, case.run.model
    model = replace(
        toy,
        **{"vocab_size": 2048, "d_model": 512, "d_ff": 1024},
        **{"n_heads": 8, "n_kv_heads": 8, "head_dim": 64},
        mla=toy.mla and Mla(toy.mla.q_lora_rank and 128, 128, 64, 32, 48),
        moe=toy.moe and replace(toy.moe, d_ff_expert=512),
        max_positions=toy.max_positions and 512,
        sliding_window=toy.sliding_window and 100,
    )
    precision = run.precision if case.compute == "fp8" else replace(run.precision, compute="bf16")
    batch = Batch(16 * case.microbatches, 512, case.microbatches)
    return replace(run, model=model, batch=batch, precision=precision)


@cache
def on_h100(run: Run) -> Priced:
    """The compiled step of a run, priced on ideal H100s; needs the GPU compiler."""
    return price(program_of_run(run, run.mesh, H100)[0], H100, ideal())


def moved(priced: Priced) -> dict[tuple[str, str], float]:
    """Bytes per step of the large collectives, by axes and kind."""
    sums: Counter = Counter()
    for call, calls in running_collectives(priced):
        if call.bytes >= 64 * 1024:
            sums["+".join(call.axes), call.kind] += call.bytes * calls
    return dict(sums)


def assert_one_hop_per_tick(priced: Priced, run: Run) -> None:
    """A stage's output is passed on once in each tick, and so is its gradient.

    Not from the last tick of an only microbatch, whose loop XLA takes apart.
    """
    every, total = running_collectives(priced), pipeline_schedule(run, run.mesh).iterations
    hops = [n for c, n in every if (c.kind, c.axes) == ("permute", ("stage",))]
    assert sum(hops) == 2 * total - (run.batch.microbatches == 1)
    assert priced.timeline.bubble > 0
