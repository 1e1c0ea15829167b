"""Machine code of kernels is left out where nothing will run, and nothing that is read changes."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from scaling.compile import options
from scaling.compile.jitted import mesh
from scaling.compile.options import (
    GPU_OPTIONS,
    NO_ASSEMBLER,
    QUICK,
    TOOLKIT,
    compile_with,
    compile_without_kernels,
)
from scaling.meshes import catalog
from tests.scaling.compile.test_compile_with import UNKNOWN, Lowered

SCRIPT = NO_ASSEMBLER / "bin" / "ptxas"
GIVEN = {"xla_of_a_user": 1}


def left(refuse: Callable[[dict[str, Any]], str | None], options: dict[str, Any]) -> Any:
    """The options that a step is compiled with at last."""
    return compile_without_kernels(Lowered(refuse), options)


def test_the_script_says_a_version_and_writes_a_byte(tmp_path: Path) -> None:
    said = subprocess.run([SCRIPT, "--version"], capture_output=True, text=True, check=True)
    assert " V12.9" in said.stdout
    out = tmp_path / "kernel.cubin"
    words = [SCRIPT, tmp_path / "kernel.ptx", "-o", out, "-arch=sm_90a", "--warn-on-spills"]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    assert (out.stat().st_size, said.stdout, said.stderr) == (1, "", "")


def test_a_users_own_options_and_toolkit_stay(monkeypatch) -> None:
    nothing = lambda options: None
    assert left(nothing, GIVEN) == {**QUICK, TOOLKIT: str(NO_ASSEMBLER), **GIVEN}
    own = {name: 2 for name in QUICK} | {TOOLKIT: "/opt/cuda"}
    assert left(nothing, own) == own
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_cuda_data_dir=/opt/cuda")
    assert TOOLKIT not in left(nothing, GIVEN)


def test_where_the_script_cannot_run_the_machines_toolkit_is_taken(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(options, "NO_ASSEMBLER", tmp_path)
    assert left(lambda options: None, GIVEN) == {**QUICK, **GIVEN}


@pytest.mark.parametrize("message", ["INTERNAL: ptxas exited with 1", "Unsupported PTX version"])
def test_what_could_be_the_scripts_fault_is_tried_with_the_machines_toolkit(message: str) -> None:
    assert left(lambda options: message if TOOLKIT in options else None, GIVEN) == GIVEN


def test_what_fails_for_another_reason_is_tried_once() -> None:
    asked = []
    with pytest.raises(RuntimeError, match="RESOURCE"):
        left(lambda options: asked.append(options) or "RESOURCE_EXHAUSTED", GIVEN)
    assert len(asked) == 1


def test_an_option_that_xla_no_longer_has_is_left_out() -> None:
    (name,) = QUICK
    refuse = lambda options: UNKNOWN.format(name) if name in options else None
    assert left(refuse, GIVEN) == {TOOLKIT: str(NO_ASSEMBLER), **GIVEN}


def test_a_missing_toolkit_is_no_fault_of_the_pipelining() -> None:
    message = "INTERNAL: libdevice not found at ./libdevice.10.bc"
    with pytest.raises(RuntimeError, match="libdevice"):
        left(lambda options: message, dict(GPU_OPTIONS))


@pytest.mark.deviceless
def test_the_scheduled_text_and_the_plan_are_those_with_kernels() -> None:
    cluster = catalog.load("dgx-h100")
    over = jax.NamedSharding(mesh({"model": 8}, cluster), jax.P(None, "model"))
    x = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16, sharding=over)
    step = jax.jit(jax.grad(lambda w, x: jnp.tanh(jax.nn.softmax(x @ w)).sum()))
    lowered, options = step.lower(x, x), {**GPU_OPTIONS, "xla_gpu_autotune_level": 0}
    both = [make(lowered, options) for make in (compile_with, compile_without_kernels)]
    assert len({compiled.as_text() for compiled in both}) == 1
    assert len({str(compiled.memory_analysis()) for compiled in both}) == 1
