"""Steps that train adapters, in closed form against the compiled program for H100, which the closed
form has not seen; beside each the same step with all parameters trained.

    python -m experiments.adapters         five minutes; needs the extra `deviceless`
"""

import statistics
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import scaling as sc

ATTENTION = ["query", "key", "value", "out"]
DENSE = [*ATTENTION, "up", "gate", "down"]


class Case(NamedTuple):
    """One step on a DGX H100."""

    recipe: str
    mesh: str
    sequences: int
    microbatches: int
    remat: str
    frozen: str  # format
    rank: int
    targets: list[str]

    def settings(self, adapters: bool) -> Mapping[str, Any]:
        """Values of run.json by dotted key."""
        values: dict[str, Any] = {
            "batch.global_batch": self.sequences,
            "batch.microbatches": self.microbatches,
            "remat": self.remat,
        }
        if adapters:
            values["train.lora"] = {"rank": self.rank, "targets": self.targets}
            values["precision.frozen"] = self.frozen
        return values


CASES = (
    Case("llama3-8b", "fsdp=8", 64, 8, "selective", "fp32", 16, DENSE),
    Case("llama3-8b", "data=8", 8, 1, "selective", "bf16", 16, ["query", "value"]),
    Case("llama3-8b", "fsdp=2,tensor=4", 8, 2, "none", "fp32", 64, DENSE),
    Case("llama3-70b", "tensor=8", 4, 4, "selective", "bf16", 16, ["query", "value"]),
    Case("llama3-8b", "fsdp=8", 64, 1, "full", "fp32", 16, ATTENTION),
    Case("mixtral-8x7b", "expert=8", 8, 1, "selective", "bf16", 16, ATTENTION),
)


def errors(adapters: bool) -> Iterator[float]:
    """Step time in closed form over that of the compiled program, less 1; prints a line of each."""
    for case in CASES:
        settings = case.settings(adapters)
        closed, compiled = (
            sc.predict(case.recipe, "dgx-h100", mesh=case.mesh, set=settings, source=source)
            for source in ("analytic", "compiled")
        )
        error = float(closed.step_time / compiled.step_time) - 1
        peaks = " and ".join(f"{p.memory.peak / 1e9:.1f}" for p in (closed, compiled))
        print(
            f"{case.recipe:13} {case.mesh:16} {case.remat:10} {float(closed.step_time):7.3f} s for "
            f"{float(compiled.step_time):7.3f} s ({error:+6.1%}), {peaks} GB"
        )
        yield error


def main() -> None:
    """Print both tables with the mean, median and worst error."""
    for adapters in (True, False):
        print("adapters" if adapters else "all parameters")
        sizes = [abs(error) for error in errors(adapters)]
        print(
            f"  mean {statistics.fmean(sizes):.1%}, median {statistics.median(sizes):.1%}, "
            f"worst {max(sizes):.1%}"
        )


if __name__ == "__main__":
    main()
