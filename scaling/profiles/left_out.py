"""How far off kernels were on chips whose own measurements were left out of the store.

`experiments/published/kernel_scores.py` takes the rows of one chip after the other from the shipped
tables and prices what was measured on it with what it then borrows; `ship_kernels.py` there writes
data/left_out.json.
"""

import json
from dataclasses import dataclass
from functools import cache

from scaling.meshes.reading import read
from scaling.profiles.shipped import DATA


@dataclass(frozen=True)
class LeftOut:
    """Errors, predicted / measured - 1, of one kind of kernel on one chip, over its software."""

    kind: str  # "product bf16, large"
    chip: str
    rows: int
    median: float  # of |error|, the median over the chip's software
    bias: float  # median error
    inside: float  # share of rows in low..high


@cache
def left_out() -> tuple[LeftOut, ...]:
    """All kinds and chips; none where nobody scored them."""
    file = DATA / "left_out.json"
    rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    return tuple(read(LeftOut, row, file.name) for row in rows)
