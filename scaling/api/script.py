"""A step that a script makes: `FILE.py:make`, called as the script's own cluster would.

def make(mesh):                make(mesh) gets a jax mesh over the cluster's devices; make()
    return step, args          finds them in jax.devices()
... step, args, kwargs         or the step alone, lowered
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from scaling.meshes.errors import InputError
from scaling.run.user_code import described, folder_on_path, run_user_code, user_function

HOW = (
    "return (step, arguments) or (step, arguments, keywords), the step from jax.jit, or the step "
    "lowered"
)


class Step(NamedTuple):
    """A step and what it is called with."""

    step: Any
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = {}

    @property
    def is_on_a_mesh(self) -> bool:
        """Whether it has been lowered, or its arguments say on which mesh it is to be."""
        from scaling.compile.stages import argument_mesh

        given = self.arguments, self.keywords
        return not hasattr(self.step, "lower") or argument_mesh(given) is not None


@contextmanager
def script_step(text: str, mesh: Any) -> Iterator[Step]:
    """Yield the step that `file.py:function` makes; its folder is on the path meanwhile.

    Args:
        text: the file and its function, of a mesh or of nothing.
        mesh: makes the mesh; called if the function takes one.

    Raises:
        InputError: no such file or function, its code fails, or it returns no step.
    """
    with folder_on_path(Path(text.rpartition(":")[0])):  # also where the step is traced
        path, make = user_function(text)
        given = (mesh(),) if _takes_mesh(make) else ()
        yield _step(run_user_code(path, lambda: make(*given)), text)


def _takes_mesh(make: Any) -> bool:
    """Whether a function is called with a mesh; InputError if it needs more."""
    parameters = list(inspect.signature(make).parameters.values())
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p for p in parameters if p.default is p.empty and p.kind not in optional]
    if len(needed) > 1 or any(p.kind is p.KEYWORD_ONLY for p in needed):
        names = ", ".join(p.name for p in needed)
        raise InputError(f"{make.__name__}({names}) must take a mesh, or nothing")
    return bool(needed) or any(p.name == "mesh" for p in parameters)


def _step(made: Any, where: str) -> Step:
    """What a script's function returned, as a step.

    Raises:
        InputError: no step, and how to return one.
    """
    parts = tuple(made) if isinstance(made, tuple) else (made,)
    is_step = bool(parts) and (hasattr(parts[0], "lower") or hasattr(parts[0], "as_text"))
    if not is_step or len(parts) > 3:
        raise InputError(f"{where} returned {described(made)}: {HOW}")
    arguments, keywords = (*parts, (), {})[1:3] if len(parts) != 2 else (parts[1], {})
    if not isinstance(arguments, tuple | list):
        raise InputError(f"{where}: write the arguments as a tuple: (step, (x,))")
    if not isinstance(keywords, Mapping):
        raise InputError(f"{where}: write the keywords as a dict: (step, args, {{'name': x}})")
    return Step(parts[0], tuple(arguments), keywords)
