"""The line of the model's source that an operation comes from: where its scope is opened.

    layers/mlp/experts  ->  models/experts.py, 195:  with jax.named_scope("experts"):

A compiled operation keeps the named scopes around it (`scaling.hlo.name_stack`), not its line.
"""

import re
from collections.abc import Iterator, Mapping
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

    Args:
        origin: of an operation.
        stages: whether the program is that of a pipeline.
    """
    scopes = [origin.phase] if origin.phase == "optimizer" else origin.layer.split("/")[::-1]
    for scope in scopes:
        found = _scopes().get(scope, ())
        for place in STAGED if stages else ORDER:
            for line in found:
                if line.file.startswith(place):
                    return line
    return None


@cache
def _scopes() -> Mapping[str, tuple[SourceLine, ...]]:
    """Lines by the scope that they open."""
    found: dict[str, tuple[SourceLine, ...]] = {}
    for scope, line in _opened():
        found[scope] = (*found.get(scope, ()), line)
    return found


def _opened() -> Iterator[tuple[str, SourceLine]]:
    package = resources.files("scaling")
    step = ("training", "step.py"), ("training", "gradients.py")
    for folder, only in ((PIPELINE, ""), ("models", ""), *step):
        place = package.joinpath(*folder.split("/"))
        for file in sorted(place.iterdir(), key=lambda f: f.name):
            if file.name.endswith(".py") and only in ("", file.name):
                for number, text in enumerate(file.read_text("utf-8").splitlines(), 1):
                    for scope in SCOPE.findall(text):
                        yield scope, SourceLine(f"{folder}/{file.name}", number, text.strip())
