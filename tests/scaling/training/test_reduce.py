"""`precision.reduce` "fp32": gradients are summed over devices in float32; gathers stay.

What the program for H100 then moves is audited in test_gpu_step_program.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scaling.analytic.table import expected_bytes, expected_transfers
from scaling.meshes.devices import host_mesh
from scaling.meshes.rules import make_rules
from scaling.meshes.shape import parse_mesh
from scaling.models.execution import Execution
from scaling.models.sharding import project
from scaling.run import Precision
from tests.harness import Case, wide
from tests.scaling.training.test_step_on_meshes import check

CASES = [
    Case("data=2,fsdp=2,tensor=2", microbatches=2, remat="full", reduce="fp32"),
    Case("data=2,fsdp=2,tensor=2", reduce="fp32"),
    Case("fsdp=2,stage=2,tensor=2", "odd", schedule="interleaved", microbatches=4, reduce="fp32"),
    Case("fsdp=2,expert=2,tensor=2", "deepseek-v3", zero=1, reduce="fp32"),
]


@pytest.mark.parametrize(
    "case", [CASES[0], *(pytest.param(case, marks=pytest.mark.slow) for case in CASES[1:])], ids=str
)
def test_step_equals_one_device_and_moves_the_table(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("mesh", ["fsdp=8", "data=4,fsdp=2"])
def test_eight_partial_sums_in_bf16_lose_what_float32_keeps(mesh: str) -> None:
    """One device adds 256, the others 1 each: 263, which bfloat16 does not have."""
    shape = parse_mesh(mesh)

    def gradient(reduce: str) -> np.ndarray:
        execution = Execution(make_rules(shape, sequence_parallel=False), reduce=reduce)
        loss = lambda w, x: project(
            execution, "bd,df->bf", x, w, ("embed", "mlp"), ("batch", "mlp")
        ).sum()
        with jax.set_mesh(host_mesh(shape)):
            x = jnp.ones((8, 8), jnp.bfloat16).at[0].set(256)
            x = jax.device_put(x, execution.spec("batch", None))
            w = jax.device_put(jnp.ones((8, 4), jnp.float32), execution.spec("embed", "mlp"))
            return np.asarray(jax.jit(jax.grad(loss))(w, x))

    assert (gradient("fp32") == 256 + 7).all()
    assert (gradient("bf16") != 256 + 7).all()


@pytest.mark.parametrize("case", [Case("data=2,fsdp=4"), Case("fsdp=4,tensor=2", "mixtral")])
def test_sums_of_weight_gradients_double_and_nothing_else(case: Case) -> None:
    run = wide(case)
    wider = replace(run, precision=Precision("bf16", reduce="fp32"))
    before, after = (expected_transfers(r, run.mesh) for r in (run, wider))
    for old, new in zip(before, after, strict=True):
        summed = old.kind != "all-gather" and "gradients" in old.place and "router" not in old.what
        weights = summed or (old.kind != "all-gather" and old.place.startswith("end embed"))
        assert new.bytes in ((2 * old.bytes,) if weights else (old.bytes, 2 * old.bytes)), new
    gathers = lambda r: {k: v for k, v in expected_bytes(r, r.mesh).items() if k[1] == "all-gather"}
    assert gathers(run) == gathers(wider)
