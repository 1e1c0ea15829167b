"""What is kept of a step besides its measurements: the program, and a profile of some steps."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from scaling.program.ir import Program
from scaling.program.serialization import program_dict

RECORDED = 3  # steps of the profile


def keep_program(raw: Path, step: jax.stages.Compiled, program: Program | None) -> None:
    """The text of a compiled step, and the Program that is priced, in a folder."""
    raw.mkdir(parents=True, exist_ok=True)
    (raw / "step.hlo.gz").write_bytes(gzip.compress((step.as_text() or "").encode()))
    if program is not None:
        text = json.dumps(program_dict(program))
        (raw / "program.json.gz").write_bytes(gzip.compress(text.encode()))


def record(step: Callable[[], Any], raw: Path) -> None:
    """Record a profile of `RECORDED` steps, without Python's calls, which would be most of it."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(raw, profiler_options=options):
        for _ in range(RECORDED):
            made = step()
        jax.block_until_ready(made)
