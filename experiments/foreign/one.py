"""Price one program of the collection in this process, and print what is kept of it as JSON.

python -m experiments.foreign.one NAME
"""

import ast
import importlib
import inspect
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from importlib import resources
from importlib.metadata import version
from types import ModuleType
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before jax is imported: no GPU is needed

import numpy as np

from experiments.foreign.result import Priced
from experiments.foreign.work import Work, product_flops
from scaling.api.pricing import price_program
from scaling.api.result import PredictionResult
from scaling.simulate.memory import persistent_bytes
from scaling.simulate.step import running_kernels

PROGRAMS = "experiments.foreign.programs"
MARK = "priced: "  # before the JSON


def names() -> list[str]:
    """Return the programs of the collection."""
    files = resources.files(PROGRAMS).iterdir()
    return sorted(f.name.removesuffix(".py") for f in files if _is_program(f.name))


def _is_program(name: str) -> bool:
    return name.endswith(".py") and not name.startswith("_")


def needs(name: str) -> str:
    """Return the environment that a program needs, its NEEDS; "" for ours."""
    body = ast.parse((resources.files(PROGRAMS) / f"{name}.py").read_text()).body
    for line in body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "NEEDS":
            return str(ast.literal_eval(line.value))
    return ""


def glue(module: ModuleType) -> int:
    """Return the lines of a program's `price`, without its head, blank lines and comments."""
    lines = inspect.getsource(module.price).splitlines()
    (function,) = ast.parse("\n".join(lines)).body
    assert isinstance(function, ast.FunctionDef)
    body = lines[function.body[0].lineno - 1 :]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in body)


def priced(name: str) -> Priced:
    """Price a program; one that is refused comes back with its error."""
    module = importlib.import_module(f"{PROGRAMS}.{name}")
    title = (module.__doc__ or name).partition("\n")[0].rstrip(".")
    begun = time.perf_counter()
    error, figures = "", dict[str, Any]()
    try:
        figures = dict(_figures(module.price(), module.WORK))
    except Exception as failure:  # whatever a program or XLA raises is its row
        error = f"{type(failure).__name__}: {failure}".splitlines()[0]
    seconds = time.perf_counter() - begun
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # KiB on Linux
    note = getattr(module, "NOTE", "")
    figures["packages"] = _packages(needs(name), getattr(module, "SOURCE", ""))
    return Priced(name, title, glue(module), seconds, held, error, note=note, **figures)


def _figures(p: PredictionResult, work: Work) -> Iterator[tuple[str, Any]]:
    """Return the figures of a prediction that the table keeps."""
    high = float(p.step_time_high)
    kernels = running_kernels(price_program(p.pricing))
    yield from {
        "devices": p.devices,
        "time": float(p.step_time),
        "low": float(p.step_time_low),
        "high": high if np.isfinite(high) else None,
        "grade": p.grade,
        "unknown": tuple(f"{part.kind} {part.name}" for part in p.unknown),
        "flops": float(sum(product_flops(kernel) * calls for kernel, calls in kernels)),
        "flops_by_hand": work.flops,
        "least_time": work.least_time(p.cluster.accelerator),
        "peak": float(p.memory.peak),
        "compiler_peak": p.pricing.program.compiler_peak,
        "state_by_hand": work.state,
        "stored": float(persistent_bytes(p.pricing.program)),
        "warnings": p.warnings,
    }.items()


def _packages(package: str, source: str) -> str:
    """Return a package, or a repository at a commit, and jax; "" for our own environment."""
    if not package:
        return ""
    return f"{source or f'{package} {version(package)}'}, jax {version('jax')}"


if __name__ == "__main__":
    print(MARK + json.dumps(asdict(priced(sys.argv[1]))), flush=True)
