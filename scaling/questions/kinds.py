"""The kinds of kernel: which sizes each has, in which order, and which options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scaling.meshes.errors import InputError
from scaling.questions.workloads import (
    Attention,
    Formats,
    Sizes,
    Work,
    any_work,
    attention,
    copy,
    elementwise,
    embedding,
    matmul,
    read,
    reduction,
)


@dataclass(frozen=True)
class Kind:
    """How the sizes of a kind are written."""

    sizes: tuple[str, ...]  # all that can be given, in order
    least: int  # how many must be
    make: Callable[..., Work]
    example: str
    bytes: tuple[str, ...] = ()  # sizes that are bytes, "400GB"


KINDS: Mapping[str, Kind] = {
    "matmul": Kind(("m", "n", "k"), 3, matmul, "8192,8192,8192"),
    "attention": Kind(("B", "N", "T", "S", "H", "K"), 5, attention, "1,32,4096,4096,128,8"),
    "elementwise": Kind(("E", "i", "f"), 1, elementwise, "65536,2,1"),
    "reduce": Kind(("E",), 1, reduction, "1e9"),
    "embedding": Kind(("T", "D", "V"), 3, embedding, "4096,8192,128256"),
    "read": Kind(("V",), 1, read, "400GB", ("V",)),
    "copy": Kind(("V",), 1, copy, "64MiB", ("V",)),
    "work": Kind(("F", "Q"), 1, any_work, "1e12,4GB", ("Q",)),
}
OPTIONS: Mapping[str, tuple[str, ...]] = {  # of `scaling kernel` -> kinds that have it
    "weights": ("matmul", "embedding"),
    "output": ("matmul",),
    "kv": ("attention",),
    "compute": ("matmul", "attention", "work"),
    "from": ("matmul", "attention", "embedding", "read", "copy", "work"),
    "causal": ("attention",),
    "backward": ("attention",),
}


def check_options(kind: str, given: Mapping[str, object]) -> None:
    """Raise InputError for an option that is given and that the kind does not have."""
    for name, value in given.items():
        if value and kind not in OPTIONS[name]:
            raise InputError(f"--{name} is of {', '.join(OPTIONS[name])}, not of {kind}")


def work_of(kind: str, sizes: Sizes, formats: Formats, how: Attention | None = None) -> Work:
    """Return the kernel of a kind with these sizes.

    Raises:
        InputError: a format that is not known, or sizes that do not fit together.
    """
    if kind == "attention":
        return attention(sizes, formats, how or Attention())
    return KINDS[kind].make(sizes, formats)
