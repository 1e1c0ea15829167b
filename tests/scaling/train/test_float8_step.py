"""A step with 8-bit matrix products, against the same step in float32 on one device.

Rounding to 8 bits moves every gradient, and each mesh rounds otherwise, because devices scale what
they hold. So directions and lengths are compared; that products are right is exact in
tests/models/test_float8.py.
"""

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.tree_util import keystr, tree_flatten_with_path

from scaling.analytic.communication.pipeline import flops_in_ticks
from scaling.compare.audit import audit
from scaling.meshes import catalog
from scaling.meshes.devices import host_mesh
from scaling.meshes.errors import InputError
from scaling.meshes.shape import parse_mesh
from scaling.models.accounting import train_flops
from scaling.models.config import Mla, ModelConfig, Moe
from scaling.parallelism.checks import check_device, check_trainable
from scaling.parallelism.rules import rules_for
from scaling.profiles.io import ideal
from scaling.program.ir import kernels
from scaling.run import Batch, Pipeline, Precision, Run, Sharding
from scaling.simulate.step import price
from scaling.train.execution import execution_for
from scaling.train.prepare import order
from scaling.train.program import program_of_run
from scaling.train.step import Tokens, abstract_state, abstract_tokens, loss_and_gradients

SEQUENCES, SEQ_LEN = 8, 32
# A wrong scale or a missing part moves these by far more; the worst of three cases, seen with jax
# 0.10.2 on CPU: 0.976 (queries of latent attention) and 4.8 % (a norm's scale).
LEAST_COSINE, LENGTH = 0.97, 0.1
QUICK = {"xla_backend_optimization_level": 0}  # of LLVM's code, not of XLA's program
H100 = catalog.load("dgx-h100")
_toy = functools.partial(ModelConfig, 64, d_model=64, n_layers=2, n_heads=4, head_dim=16, d_ff=128)
MODELS = {
    "llama": _toy(),
    "gpt": _toy(mlp="gelu", norm="layernorm", positions="none", bias=True, tied_embeddings=True),
    "latent": _toy(mla=Mla(16, 16, 8, 8, 16)),
}


class Case(NamedTuple):
    mesh: str
    model: str = "llama"
    remat: str = "none"
    microbatches: int = 1
    schedule: str = "1f1b"
    zero: int = 3
    compute: str = "fp8"

    @property
    def run(self) -> Run:
        return Run(
            "toy",
            MODELS[self.model],
            Batch(SEQUENCES, SEQ_LEN, self.microbatches),
            parse_mesh(self.mesh),
            Sharding(zero_stage=self.zero),
            pipeline=Pipeline(self.schedule),  # type: ignore[arg-type]
            precision=Precision(self.compute),  # type: ignore[arg-type]
            remat=self.remat,  # type: ignore[arg-type]
        )

    def __str__(self) -> str:
        return "-".join(map(str, self[:-1]))


FAST = [Case("data=2,fsdp=2,tensor=2")]
MORE = [
    Case("stage=2,fsdp=2,tensor=2", "gpt", "selective", 2),
    Case("data=1"),
    Case("data=2,fsdp=2,tensor=2", "gpt", "full", 2),
    Case("fsdp=2,context=2,tensor=2", "llama", "selective"),
    Case("data=2,fsdp=2,tensor=2", "latent", "none", 2),
    Case("data=2,fsdp=4", "gpt", zero=1),
    Case("fsdp=4,tensor=2", "llama", "full", zero=1),
    Case("data=2,stage=2,tensor=2", "llama", "full", 4, "gpipe"),
]


def by_name(tree: Any) -> dict[str, np.ndarray]:
    leaves, _ = tree_flatten_with_path(tree)
    return {keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def computed(case: Case) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients by name, as whole arrays on the host."""
    run = case.run
    execution = execution_for(run, rules_for(run, run.mesh), "cpu")
    noise = np.random.default_rng(0)
    text = noise.integers(64, size=(SEQUENCES, SEQ_LEN + 1)).astype(np.int32)
    with jax.set_mesh(host_mesh(run.mesh)):
        flat, treedef = tree_flatten_with_path(
            abstract_state(run.model, execution, run.train).params
        )
        leaves = []
        for path, leaf in flat:
            scale = keystr(path, simple=True, separator="/").endswith("scale/value")
            x = np.float32(0.1 * noise.standard_normal(leaf.shape) + scale)
            leaves.append(jax.device_put(x, leaf.sharding))
        params, cut = treedef.unflatten(leaves), abstract_tokens(run.batch, execution).inputs
        zigzag = order(SEQ_LEN, run.mesh.context)
        parts = (part[:, zigzag].reshape(cut.shape) for part in (text[:, :-1], text[:, 1:]))
        tokens = Tokens(*jax.device_put(tuple(parts), cut.sharding))
        step = jax.jit(loss_and_gradients).lower(params, tokens).compile(compiler_options=QUICK)
        loss, gradients = step(params, tokens)
        return float(loss), by_name(gradients)


exactly = functools.cache(lambda model: computed(Case("data=1", model, compute="fp32")))


def check(case: Case) -> None:
    loss, gradients = computed(case)
    wanted_loss, wanted = exactly(case.model)
    assert loss == pytest.approx(wanted_loss, rel=0.01)
    assert loss != pytest.approx(wanted_loss, rel=1e-6)  # it did round
    for name, gradient in gradients.items():
        if "key_bias" in name:
            continue  # zero without rotation, see test_sharded_step
        g, w = gradient.ravel().astype(np.float64), wanted[name].ravel().astype(np.float64)
        lengths = np.linalg.norm(g), np.linalg.norm(w)
        assert g @ w / np.prod(lengths) > LEAST_COSINE, name
        assert lengths[0] == pytest.approx(lengths[1], rel=LENGTH), name


@pytest.mark.parametrize("case", FAST, ids=str)
def test_gradients_point_where_those_in_float32_point(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE, ids=str)
def test_so_they_do_on_more_meshes(case: Case) -> None:
    check(case)


# --- the program of a GPU -------------------------------------------------------------------------


@pytest.mark.deviceless
@pytest.mark.parametrize(
    "case",
    [
        Case("data=2,fsdp=2,tensor=2"),
        Case("fsdp=2,context=2,tensor=2", remat="full", microbatches=2),
        Case("data=2,fsdp=2,stage=2", remat="selective", microbatches=2),
    ],
    ids=str,
)
def test_an_h100_multiplies_all_projections_in_8_bits_and_moves_what_bf16_moves(case: Case) -> None:
    model = ModelConfig(2048, 512, 4, n_heads=8, head_dim=64, d_ff=1024)
    run = replace(case.run, model=model, batch=Batch(16, 512, case.microbatches))
    program, _ = program_of_run(run, run.mesh, H100)
    assert audit(price(program, H100, ideal()), run, run.mesh) == []
    eight = sum(k.flops * n for k, n in kernels(program) if k.dtype == "fp8")
    asked = flops_in_ticks(run, run.mesh, train_flops(model, 16, 512, case.remat).groups)
    projections = sum(n for name, n in asked.items() if name not in ("attention", "head"))
    assert eight == pytest.approx(projections / 8, rel=1e-6)
    assert {k.dtype for k, _ in kernels(program) if k.kind == "attention"} == {"bf16"}


# --- what is refused ------------------------------------------------------------------------------


def test_experts_are_refused_by_name() -> None:
    run = Case("data=1").run
    run = replace(run, model=replace(run.model, moe=Moe(4, 2, 32)))
    with pytest.raises(
        InputError, match="mixture-of-experts .* 'fp8' is not yet trained; use bf16"
    ):
        check_trainable(run, run.mesh)


class Gpu(NamedTuple):
    compute_capability: str
    platform: str = "gpu"
    device_kind: str = "NVIDIA A100"


def test_a_gpu_without_8_bit_units_is_refused_before_anything_is_compiled() -> None:
    run = Case("data=1").run
    with pytest.raises(InputError, match=r"A100 \(compute capability 8.0\).*begins with 8.9; use"):
        check_device(run, Gpu("8.0"))
    for fine in (Gpu("8.9"), Gpu("9.0"), Gpu("gfx942"), jax.devices()[0]):
        check_device(run, fine)
    check_device(replace(run, precision=Precision("bf16")), Gpu("8.0"))
