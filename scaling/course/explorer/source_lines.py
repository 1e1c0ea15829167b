"""The line of the model's source that an operation comes from: where its scope is opened.

    layers/mlp/experts  ->  models/experts.py, 187:  with jax.named_scope("experts"):

A compiled operation keeps the named scopes around it (`scaling.hlo.name_stack`), not its line.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from scaling.program.ir import Origin

SCOPE = re.compile(r'named_scope\("(\w+)"\)')
PIPELINE = "models/pipeline"
# Files in the order in which one is named, if several open a scope: the model, then the step.
ORDER = (
    "models/transformer.py",
    "models/experts.py",
    "models/head.py",
    "models",
    "training/step.py",
    "training/gradients.py",
)
STAGED = (PIPELINE, *ORDER)  # of programs with pipeline stages


@dataclass(frozen=True)
class SourceLine:
    """Where the source opens a scope."""

    file: str  # below the package
    line: int
    text: str


def source_line(origin: Origin, stages: bool = False) -> SourceLine | None:
    """Return where the innermost scope of an origin is opened; None: it has none that we open.

    `stages`: whether the program is that of a pipeline.
    """
    scopes = [origin.phase] if origin.phase == "optimizer" else origin.layer.split("/")[::-1]
    order = STAGED if stages else ORDER
    named = (
        line
        for scope in scopes
        for place in order
        for line in _scopes().get(scope, ())
        if line.file.startswith(place)
    )
    return next(named, None)


@cache
def _scopes() -> Mapping[str, list[SourceLine]]:
    package, found = resources.files("scaling"), defaultdict(list)
    for folder in (PIPELINE, "models", "training"):
        for file in sorted(package.joinpath(folder).iterdir(), key=lambda f: f.name):
            name = f"{folder}/{file.name}"
            if name.endswith(".py") and (folder != "training" or name in ORDER):
                for number, text in enumerate(file.read_text("utf-8").splitlines(), 1):
                    for scope in SCOPE.findall(text):
                        found[scope].append(SourceLine(name, number, text.strip()))
    return found
