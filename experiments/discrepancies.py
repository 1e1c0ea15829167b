"""Is what was asked for what runs? Compiled steps held against the table of
`analytic.table`.

    python -m experiments.discrepancies --out experiments/results        about 8 minutes, no GPU

Each pair of a model and a mesh is compiled for its cluster as the trainer would compile it. Summed
bytes per (axes, kind) over calls of 64 KiB and more must equal the table within 1 %; what does not
is listed with its lines, its reason and its cost.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import jax

from experiments.gpu.machine import git_commit
from scaling.analytic.table import SMALLEST, expected_bytes
from scaling.comparing.audit import audit
from scaling.comparing.discrepancy import PRODUCTS, Discrepancy
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.meshes.shape import AXES, MeshShape, parse_mesh
from scaling.meshes.units import format_time
from scaling.profiles.io import profile_of
from scaling.program.ir import Program, collectives
from scaling.program.versions import compiler_versions
from scaling.report.formatting import columns
from scaling.run import Batch, Precision, Run, Sharding
from scaling.run.recipes import recipe
from scaling.simulate.step import price
from scaling.training.program import program_of_run

SCHEMA = 1  # of the results file; a key that goes or changes its meaning makes it 2
TENSOR_OUTERMOST = ("tensor", *AXES[:-1])


@dataclass(frozen=True)
class Pair:
    """A model on a mesh."""

    recipe: str
    mesh: str
    cluster: str
    remat: Any = "none"
    microbatches: int = 1
    sequences: int = 1  # of one microbatch on one device; 0: the recipe's whole batch
    compute: Any = "bf16"
    sequence_parallel: bool | None = None
    device_order: tuple[str, ...] = AXES

    @property
    def name(self) -> str:
        """In words; what is not the default is named."""
        words = [self.recipe, self.mesh, self.cluster, self.remat]
        words += [f"x{self.microbatches}"] * (self.microbatches > 1)
        words += [self.compute] * (self.compute != "bf16")
        words += ["whole sequences"] * (self.sequence_parallel is False)
        words += [f"{self.device_order[0]} outermost"] * (self.device_order != AXES)
        words += ["its own batch"] * (self.sequences == 0)
        return " ".join(words)


PAIRS = (
    Pair("llama3-1b", "data=8", "dgx-h100", "selective"),
    Pair("llama3-1b", "fsdp=8", "dgx-a100"),
    Pair("llama3-1b", "data=2,fsdp=2,tensor=2", "dgx-h100", "none", 2, 2),
    Pair("llama3-8b", "fsdp=8", "dgx-h200", "selective"),
    Pair("llama3-8b", "fsdp=64", "dgx-h100", "full", 1, 2),
    Pair("llama3-8b", "data=4,fsdp=8,tensor=8", "dgx-h100", "selective"),
    Pair("llama3-8b", "fsdp=32,tensor=2", "dgx-b200", "full", compute="fp32"),
    Pair("llama3-8b", "data=2,tensor=8", "dgx-h200", "selective", 2, sequence_parallel=False),
    Pair("llama3-8b", "fsdp=8,tensor=2", "dgx-h100", "full", device_order=TENSOR_OUTERMOST),
    Pair("llama3-70b", "fsdp=64,tensor=8", "dgx-h100", "full"),
    Pair("llama3-70b", "fsdp=64,tensor=8", "dgx-h100", "selective", 8),
    Pair("llama3-70b", "data=2,fsdp=64,tensor=8", "dgx-h100", "full", 2, 2),
    Pair("llama3-70b", "fsdp=64,tensor=8", "dgx-b200", "full", sequence_parallel=False),
    Pair("llama3-405b", "fsdp=128,tensor=8", "dgx-h100", "full"),
    Pair("llama3-405b", "data=2,fsdp=64,tensor=8", "dgx-b200", "full", 2),
    Pair("gpt2-124m", "data=8", "dgx-h100", "none", 1, 8),
    Pair("gpt2-124m", "fsdp=8", "dgx-a100", "selective", 1, 8),
    Pair("gpt2-124m", "data=2,fsdp=4", "dgx-h100", "none", 1, 8),
    Pair("gpt2-124m", "data=1", "dgx-h200", "none", sequences=0),
    Pair("gpt2-355m", "data=2,fsdp=2,tensor=2", "dgx-h100", "selective", 1, 8),
    Pair("gpt2-355m", "fsdp=4,tensor=4", "dgx-a100", "full", 1, 8, sequence_parallel=False),
    Pair("gpt2-1.5b", "data=2,fsdp=4", "dgx-a100", "selective", 4, 4),
    Pair("gpt2-1.5b", "fsdp=16", "dgx-h200", "full", 1, 4),
    Pair("gpt3-175b", "data=2,fsdp=64,tensor=8", "dgx-h100", "full", 2, 6),
    Pair("gpt3-175b", "fsdp=128,tensor=8", "dgx-h200", "full", 1, 2),
    Pair("megatron-22b", "data=4,fsdp=4,tensor=8", "dgx-a100", "selective", 1, 2),
    Pair("megatron-22b", "data=2,fsdp=8,tensor=8", "dgx-h200", "full", 2, 2),
    Pair("qwen3-0.6b", "data=8", "dgx-h100", "selective"),
    Pair("qwen3-0.6b", "fsdp=4,tensor=2", "dgx-b200", "selective", 1, 2),
    Pair("qwen3-0.6b", "fsdp=4,tensor=2", "dgx-b200", "selective", sequences=0),
    Pair("qwen3-8b", "fsdp=16", "dgx-h200", "selective"),
    Pair("qwen3-8b", "data=2,fsdp=8,tensor=4", "dgx-h100", "full", 2),
    Pair("gpt-305m", "data=8", "dgx-h100", "none", 1, 8),
    Pair("gpt-305m", "data=2,fsdp=4", "dgx-a100", "none", 2, 4, compute="tf32"),
    Pair("mistral-7b", "fsdp=16,tensor=2", "dgx-h100", "selective"),
    Pair("demo", "fsdp=8", "dgx-h100", "none", 1, 4),
)


@dataclass(frozen=True)
class Result:
    """One pair, compiled and compared."""

    pair: Pair
    bytes: dict[str, dict[str, float]]  # "axes kind" -> expected and found, calls of 64 KiB on
    seconds: float  # of a step, as priced
    discrepancies: tuple[Discrepancy, ...]

    @property
    def matches(self) -> bool:
        """True if the program moves what the table says."""
        return all(discrepancy.kind == PRODUCTS for discrepancy in self.discrepancies)


def described(pair: Pair) -> tuple[Run, MeshShape, Cluster]:
    """The run, mesh and cluster of a pair."""
    shape, base = parse_mesh(pair.mesh, pair.device_order), recipe(pair.recipe)
    sequences = shape.batch_shards * pair.microbatches * pair.sequences
    run = replace(
        base,
        mesh=shape,
        remat=pair.remat,
        batch=Batch(sequences or base.batch.global_batch, base.batch.seq_len, pair.microbatches),
        precision=Precision(compute=pair.compute),
        sharding=Sharding(sequence_parallel=pair.sequence_parallel),
    )
    cluster = catalog.load(pair.cluster)
    return run, shape, catalog.load(pair.cluster, -(-shape.devices // cluster.devices_per_node))


def compared(pair: Pair) -> Result:
    """Compile the pair's step and hold it against the table."""
    run, shape, cluster = described(pair)
    program, _ = program_of_run(run, shape, cluster)
    priced = price(program, cluster, profile_of(cluster.accelerator))
    asked, found = expected_bytes(run, shape), moved(program)
    both = {
        " ".join(key): {"expected": asked.get(key, 0.0), "found": found.get(key, 0.0)}
        for key in sorted({*asked, *found})
    }
    return Result(pair, both, float(priced.timeline.total), tuple(audit(priced, run, shape)))


def moved(program: Program) -> dict[tuple[str, str], float]:
    """Bytes per step by axes and kind, of calls of 64 KiB and more."""
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for collective, calls in collectives(program):
        if collective.bytes >= SMALLEST:
            axes = "+".join(collective.axes) or ("unnamed" if collective.groups else "none")
            sums[axes, collective.kind] += float(collective.bytes * calls)
    return {key: n for key, n in sums.items() if key[0] != "none"}


def table(results: Iterable[Result]) -> str:
    """All pairs, and below them the kinds of discrepancy."""
    results = list(results)
    rows = [("pair", "step", "matches", "discrepancies")]
    for result in results:
        matches = "yes" if result.matches else "no"
        words = "; ".join(map(str, result.discrepancies)) or "-"
        rows.append((result.pair.name, format_time(result.seconds), matches, words))
    kinds = Counter(s.reason for result in results for s in result.discrepancies)
    count = sum(result.matches for result in results)
    return "\n".join(
        [
            *columns(rows, left=(0, 2, 3)),
            f"\n{count} of {len(results)} pairs move what the table says; kinds of discrepancy:",
            *(f"  {n} x {reason}" for reason, n in kinds.most_common()),
        ]
    )


def page(results: Sequence[Result], words: str) -> str:
    """The README of the results folder. `words`: date, versions, commit."""
    lines = [
        "# Is what was asked for what runs?",
        "",
        words,
        "",
        "Made by `python -m experiments.discrepancies`: each pair is compiled without a GPU; its",
        "bytes per (axes, kind), over calls of 64 KiB and more, are held against a table derived",
        "by hand (`scaling/analytic`), within 1 %. `discrepancies.json` has all sums and",
        "the HLO lines of what differs. `step`: as priced. Pairs with other products are named,",
        "but count as matching where their bytes are those of the table.",
        "",
        "```",
        table(results),
        "```",
    ]
    return "\n".join(lines) + "\n"


def save(results: Sequence[Result], folder: Path) -> Path:
    """Write the results below `folder`, in one of this day."""
    place = folder / f"{date.today().isoformat()}-discrepancies"
    place.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "date": date.today().isoformat(),
        "versions": compiler_versions(),
        "commit": git_commit(),
        "pairs": [{"name": r.pair.name, "matches": r.matches, **asdict(r)} for r in results],
    }
    packages = ", ".join(f"{name} {found}" for name, found in document["versions"].items())
    words = f"{document['date']}, {packages}, commit {document['commit']}."
    (place / "README.md").write_text(page(results, words), encoding="utf-8")
    path = place / "discrepancies.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


def main(arguments: list[str] | None = None) -> None:
    """Compile and compare all pairs, print the table, save the results."""
    parser = argparse.ArgumentParser(prog="python -m experiments.discrepancies")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--only", default="", help="pairs whose name has this text")
    args = parser.parse_args(arguments)
    jax.config.update("jax_platforms", "cpu")  # the devices compiled for are not here
    results = []
    for pair in PAIRS:
        if args.only in pair.name:
            results.append(compared(pair))
            print(f"{pair.name}: {'; '.join(map(str, results[-1].discrepancies)) or 'as asked'}")
            jax.clear_caches()
    print(f"\n{table(results)}\nresults: {save(results, args.out)}")


if __name__ == "__main__":
    main()
