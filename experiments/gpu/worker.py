"""One stage of the measurement, in this process: its result as JSON, its raw data in a folder.

python -m experiments.gpu.worker "case gpt2-124m 32x1024 none" --folder F --result R --raw D
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from experiments.baselines.alternate import CASES, TINY, alternate, one_turn
from experiments.gpu.cases import label, mesh_of
from experiments.gpu.ceilings import measure_ceilings
from experiments.gpu.kernels import check_kernel
from experiments.gpu.machine import LOAD, describe, identify, nvidia_smi, short
from experiments.gpu.measure import is_out_of_memory, measure, with_rates
from experiments.gpu.predicted import as_dict, counts, guesses, home, profiles_of
from experiments.gpu.raw import keep_program
from experiments.gpu.record import CALIBRATION, read
from experiments.gpu.stages import OUT_OF_MEMORY, Stage, result_of, runs, stages
from experiments.gpu.timing import QUICK, THOROUGH
from scaling.calibration.calibrate import calibrate
from scaling.compile.options import WITHOUT_DEVICE, compile_with, compiler_options
from scaling.meshes.cluster import Cluster
from scaling.meshes.devices import absent_mesh
from scaling.meshes.errors import InputError
from scaling.profiles.io import write_profile
from scaling.run import Run, run_dict
from scaling.run.parallelism.rules import rules_for
from scaling.training.execution import execution_for
from scaling.training.launch.gpu import reserve_gpu_memory
from scaling.training.step import abstract_arguments, jitted_step

STAND_IN = "h100-sxm"  # compiled for where nothing is measured: toys on a CPU


class NotPossible(Exception):
    """A stage that this machine has not what it takes for."""


@dataclass(frozen=True)
class Work:
    """What a stage works with."""

    argument: str
    document: dict[str, Any]  # the results so far
    calibration: Path
    raw: Path
    torch_python: str

    @property
    def tiny(self) -> bool:
        return self.document["tiny"]

    @property
    def run(self) -> Run:
        return next(run for run in runs(self.document) if label(run) == self.argument)


def machine(work: Work) -> dict[str, Any]:
    """The machine, idle, and its best rates."""
    devices = jax.local_devices()
    idle = nvidia_smi(LOAD)
    return {
        **describe(devices, work.document["commit"]),
        "idle": idle,
        "ceilings": measure_ceilings(devices[0], work.tiny),
    }


def kernel(work: Work) -> dict[str, Any]:
    """A kernel's errors and rates."""
    return check_kernel(work.argument, work.tiny)


def calibration(work: Work) -> dict[str, Any]:
    """The efficiencies of this machine in a file, and how long that took."""
    start = time.monotonic()
    profile = calibrate(quick=True, progress=lambda text: print(text, flush=True))
    write_profile(profile, work.calibration)
    fits = {name: len(getattr(profile, name)) for name in ("matmul", "attention", "collectives")}
    return {"seconds": time.monotonic() - start, "machine": profile.machine, "fits": fits}


def case(work: Work) -> dict[str, Any]:
    """A case, measured and predicted."""
    reserve_gpu_memory()
    devices = jax.local_devices()
    chip = identify(devices[0].device_kind)
    profiles = profiles_of(chip.accelerator, work.calibration)
    effort = QUICK if work.tiny else THOROUGH
    found = measure(work.run, devices, effort, profiles, work.raw)
    ceilings = (result_of(work.document, "machine") or {}).get("ceilings")
    matmul = ceilings and ceilings["matmul"]["flops_per_second"]
    return {"run": run_dict(work.run), **with_rates(found, chip.peak, matmul)}


def absent(work: Work) -> dict[str, Any]:
    """The step of a case compiled for one such chip that is not there, by the same versions."""
    device = (result_of(work.document, "machine") or {}).get("device", {})
    chip = STAND_IN if work.tiny else device.get("accelerator")
    run = work.run
    if chip is None or mesh_of(run).devices > 1:
        raise NotPossible("for one chip of the catalogue only")
    cluster = home(chip)
    step, mesh = absent_step(run, cluster)
    own = work.raw / "none" if work.tiny else work.calibration  # a CPU's is not that of a GPU
    found = guesses(step, mesh, run, profiles_of(chip, own))
    program = next((g[0].program for g in found.values() if not isinstance(g, str)), None)
    keep_program(work.raw, step, program)
    return {
        "cluster": cluster.name,
        "predicted": {name: as_dict(guess) for name, guess in found.items()},
        "counts": None if program is None else counts(program),
    }


def absent_step(run: Run, cluster: Cluster) -> tuple[jax.stages.Compiled, Mesh]:
    """The trainer's step of a case compiled for a cluster that is not there, and its mesh."""
    try:
        mesh = absent_mesh(mesh_of(run), cluster)
    except InputError as error:
        raise NotPossible(f"this jax compiles for no absent GPU: {error}") from None
    capability = cluster.accelerator.compute_capability or 0.0
    execution = execution_for(run, rules_for(run, mesh_of(run)), "cuda", capability)
    with jax.set_mesh(mesh):
        arguments = abstract_arguments(run, execution)
        lowered = jitted_step(run).lower(*arguments)
        return compile_with(lowered, {**compiler_options("cuda"), **WITHOUT_DEVICE}), mesh


def pytorch(work: Work) -> dict[str, Any]:
    """One round of our step and PyTorch's; this process itself leaves the device alone."""
    python = work.torch_python or sys.executable
    if not _has_torch(python):
        raise NotPossible("there is no PyTorch; name a Python that has it: --torch-python PATH")
    pythons = {"jax": sys.executable, "torch": python}
    wanted = [c for c in (TINY if work.tiny else CASES) if c.name == work.argument]
    return alternate(wanted, 1, lambda side, case: one_turn(pythons[side], side, case))[0]


def _has_torch(python: str) -> bool:
    if python == sys.executable:
        return importlib.util.find_spec("torch") is not None
    try:
        return not subprocess.run([python, "-c", "import torch"], capture_output=True).returncode
    except OSError:
        return False


KINDS: dict[str, Callable[[Work], dict[str, Any]]] = {
    function.__name__: function
    for function in (machine, kernel, calibration, case, absent, pytorch)
}


def outcome(stage: Stage, work: Work) -> dict[str, Any]:
    """What the results keep of a stage: its measurements, or why there are none."""
    try:
        return {"status": "ok", "result": KINDS[stage.kind](work)}
    except NotPossible as error:
        return {"status": "not possible", "error": str(error)}
    except Exception as error:  # of jax, XLA and CUDA: a bad stage must not end the others
        traceback.print_exc()
        status = OUT_OF_MEMORY if is_out_of_memory(error) else "failed"
        return {"status": status, "error": short(error)}


def main(arguments: list[str] | None = None) -> None:
    """Run one stage and write its outcome."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("stage")
    parser.add_argument("--folder", type=Path, required=True, help="of the results so far")
    parser.add_argument("--result", type=Path, required=True, help="file to write")
    parser.add_argument("--raw", type=Path, required=True, help="folder for raw data")
    parser.add_argument("--torch-python", default="")
    args = parser.parse_args(arguments)
    document = read(args.folder)
    stage = next(s for s in stages(document) if s.name == args.stage)
    work = Work(stage.argument, document, args.folder / CALIBRATION, args.raw, args.torch_python)
    partial = args.result.with_suffix(".partial")
    partial.write_text(json.dumps(outcome(stage, work), allow_nan=False))
    os.replace(partial, args.result)


if __name__ == "__main__":
    main()
