"""Do the two front ends agree? The closed form of a step held against the compiled one.

    python -m experiments.front_ends --out experiments/results        about 8 minutes, no GPU
    python -m experiments.front_ends --against FILE                   seconds: closed forms anew
    python -m experiments.front_ends --against FILE --only expert     compiles those cases anew
    python -m experiments.front_ends --before FILE ...                and the programs of then

Each case is compiled for its cluster as the trainer would compile it, and priced by the same
figures as its closed form. Goals: FLOPs 1 %, bytes per (axes, kind) 2 %, peak memory 5 %, step
time 5 %; what misses a goal is listed with its cause. Of each compiled program there are its step,
the communication that it waits for, its peak, and its FLOPs of products over those that the model
needs, which MFU credits: the others are computed again, or on empty rows.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from statistics import mean, median
from typing import Any

from experiments.gpu.machine import git_commit
from scaling.analytic.program import analytic_program
from scaling.api.runs import apply_settings
from scaling.comparing.audit import audit
from scaling.comparing.discrepancy import PRODUCTS, REMAT_SUFFIX
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.meshes.shape import MeshShape, parse_mesh
from scaling.meshes.units import format_size, format_time
from scaling.models.accounting.flops import model_flops
from scaling.profiles.io import profile_of
from scaling.program.ir import CATEGORIES, Kernel, collectives, kernels
from scaling.program.versions import compiler_versions
from scaling.report.formatting import columns
from scaling.run import Batch, Run
from scaling.run.recipes import recipe
from scaling.simulate.step import Priced, price, running_collectives, running_kernels
from scaling.training.program import program_of_run

RESULTS = Path(__file__).parent / "results"
SCHEMA = 1  # of the results file; a key that goes or changes its meaning makes it 2
GOALS = {"flops": 0.01, "bytes": 0.02, "memory": 0.05, "time": 0.05}
SMALLEST = 64 * 1024  # bytes of one call; smaller ones cost latency
WAITING = "waiting for"  # how parts of exposed communication begin
NOTED = 0.01  # share of the step that a cause must be worth


@dataclass(frozen=True)
class Case:
    """A model on a mesh, with settings of run.json."""

    recipe: str
    mesh: str
    settings: str = ""  # key=value, separated by spaces
    microbatches: int = 1
    sequences: int = 1  # of one microbatch on one batch shard
    cluster: str = "dgx-h100"

    @property
    def name(self) -> str:
        """In words."""
        words = [self.recipe, self.mesh, self.settings, f"x{self.microbatches}"]
        return " ".join(filter(None, [*words, *[self.cluster] * (self.cluster != "dgx-h100")]))


FULL, SELECTIVE, NONE = "remat=full", "remat=selective", "remat=none"
INTERLEAVED = "pipeline.schedule=interleaved pipeline.virtual_stages=2"
CASES = (
    Case("llama3-1b", "data=8", SELECTIVE),
    Case("llama3-1b", "fsdp=8", NONE),
    Case("llama3-1b", "data=2,fsdp=2,tensor=2", NONE, 2),
    Case("llama3-1b", "fsdp=4,tensor=2", FULL, 2, 2),
    Case("llama3-1b", "fsdp=8", f"{FULL} sharding.zero_stage=1", 2),
    Case("llama3-1b", "data=2,fsdp=4", f"{SELECTIVE} sharding.zero_stage=1", 4),
    Case("llama3-1b", "context=8", SELECTIVE),
    Case("llama3-1b", "fsdp=2,context=4", f"{SELECTIVE} context.method=all-gather"),
    Case("llama3-1b", "data=2,stage=4", SELECTIVE, 8),
    Case("llama3-1b", "fsdp=4,stage=2", FULL, 4),
    Case("llama3-1b", "fsdp=2,stage=4", f"{SELECTIVE} {INTERLEAVED}", 8),
    Case("llama3-1b", "fsdp=8", f"{SELECTIVE} precision.compute=fp8"),
    Case("llama3-1b", "fsdp=8", f"{FULL} optimizer=muon"),
    Case("llama3-1b", "fsdp=8", f"{FULL} optimizer=lion", cluster="dgx-h200"),
    Case("llama3-8b", "fsdp=8", SELECTIVE, cluster="dgx-h200"),
    Case("llama3-8b", "fsdp=64", FULL, 1, 2),
    Case("llama3-8b", "data=8,fsdp=8", SELECTIVE, 8),
    Case("llama3-8b", "data=4,fsdp=8,tensor=8", SELECTIVE),
    Case("llama3-8b", "fsdp=2,tensor=4", NONE, 1, 2),
    Case("llama3-8b", "fsdp=8,tensor=2", f"{FULL} sharding.sequence_parallel=false"),
    Case("llama3-8b", "fsdp=4,stage=4", SELECTIVE, 8),
    Case("llama3-8b", "stage=2,tensor=8", FULL, 8),
    Case("llama3-8b", "fsdp=4,context=2,tensor=2", FULL),
    Case("llama3-70b", "fsdp=64,tensor=8", FULL),
    Case("llama3-70b", "fsdp=64,tensor=8", SELECTIVE, 8),
    Case("llama3-70b", "fsdp=16,stage=4,tensor=8", FULL, 8),
    Case("llama3-405b", "fsdp=128,tensor=8", FULL),
    Case("gpt2-124m", "data=8", NONE, 1, 16),
    Case("gpt2-124m", "fsdp=8", SELECTIVE, 1, 16, "dgx-a100"),
    Case("gpt2-1.5b", "data=2,fsdp=4", SELECTIVE, 4, 4, "dgx-a100"),
    Case("gpt3-175b", "fsdp=128,tensor=8", FULL, 1, 2),
    Case("megatron-22b", "data=2,fsdp=8,tensor=8", FULL, 2, 2),
    Case("qwen3-0.6b", "data=8", SELECTIVE),
    Case("qwen3-8b", "fsdp=16", SELECTIVE, cluster="dgx-h200"),
    Case("qwen3-8b", "data=2,fsdp=8,tensor=4", FULL, 2),
    Case("mistral-7b", "fsdp=16,tensor=2", SELECTIVE),
    Case("mixtral-8x7b", "fsdp=8,expert=8", f"{FULL} model.moe.capacity_factor=1.25"),
    Case("mixtral-8x7b", "fsdp=8,expert=8", FULL),
    Case("mixtral-8x7b", "fsdp=8,expert=4,tensor=2", f"{FULL} model.moe.capacity_factor=1.25"),
    Case("deepseek-v3", "fsdp=32,expert=32", f"{FULL} model.moe.capacity_factor=1.25"),
    Case("mixtral-8x7b", "expert=8", f"{SELECTIVE} model.n_layers=8", 1, 2),
    Case("llama3-8b", "fsdp=16", f"{FULL} precision.compute=tf32"),
    Case("llama3-8b", "fsdp=8,tensor=4", FULL, cluster="dgx-b200"),
    Case("gpt2-355m", "data=2,fsdp=2,tensor=2", SELECTIVE, 2, 8),
    Case("qwen3-0.6b", "fsdp=4,tensor=2", FULL, 2, 2),
    Case("llama3-8b", "data=2,fsdp=32", SELECTIVE, 2),
    Case("mistral-7b", "fsdp=8", FULL, 4),
    Case("llama3-70b", "data=2,fsdp=32,tensor=8", SELECTIVE, 2),
    Case("megatron-22b", "fsdp=8,stage=2,tensor=4", FULL, 8),
    Case("qwen3-8b", "fsdp=4,context=2,tensor=2", SELECTIVE),
    Case("llama3-1b", "fsdp=4,stage=2", NONE, 4),
)
# The closed form's counts of passes, copies and buffers were read from programs of the cases above.
# These were compiled for the first time when it was done.
UNSEEN = (
    Case("llama3-1b", "fsdp=2,stage=2,tensor=2", FULL, 4),
    Case("qwen3-0.6b", "data=4,stage=2", f"{SELECTIVE} {INTERLEAVED}", 8),
    Case("mistral-7b", "data=2,fsdp=8,tensor=2", SELECTIVE, 2),
    Case("llama3-1b", "fsdp=4,tensor=2", NONE),
    Case("mixtral-8x7b", "fsdp=4,expert=4", f"{FULL} model.moe.capacity_factor=1.25"),
    Case("gpt2-1.5b", "fsdp=8", FULL, 1, 2),
)


@dataclass(frozen=True)
class Figures:
    """The compared figures of one front end."""

    flops: float  # of matrix products, one device
    bytes: dict[str, float]  # "axes kind" -> of calls of 64 KiB and more
    memory: dict[str, float]  # by category, at the peak
    time: float  # s, one step
    parts: dict[str, float]  # s by "phase layer kind" of kernels, and "exposed axes kind"

    @property
    def peak(self) -> float:
        """Bytes at the peak."""
        return sum(self.memory.values())

    @property
    def exposed(self) -> float:
        """Seconds of a step in which compute waits for communication."""
        return sum(seconds for part, seconds in self.parts.items() if part.startswith(WAITING))


@dataclass(frozen=True)
class Result:
    """One case by both front ends."""

    case: Case
    compiled: Figures
    analytic: Figures
    causes: tuple[str, ...]

    @property
    def errors(self) -> dict[str, float]:
        """Closed form over compiled, less 1; of bytes the worst key, in shares of all bytes."""
        found, expected = self.compiled, self.analytic
        total = sum(found.bytes.values()) or 1.0
        keys = {*found.bytes, *expected.bytes}
        gaps = (expected.bytes.get(k, 0.0) - found.bytes.get(k, 0.0) for k in keys)
        return {
            "flops": expected.flops / found.flops - 1,
            "bytes": max(gaps, key=abs, default=0.0) / total,
            "memory": expected.peak / found.peak - 1,
            "time": expected.time / found.time - 1,
        }

    @property
    def missed(self) -> list[str]:
        """The goals that it misses."""
        return [name for name, error in self.errors.items() if abs(error) > GOALS[name]]


def described(case: Case) -> tuple[Run, MeshShape, Cluster]:
    """The run, mesh and cluster of a case."""
    shape, base = parse_mesh(case.mesh), recipe(case.recipe)
    sequences = shape.batch_shards * case.microbatches * case.sequences
    batch = Batch(sequences, base.batch.seq_len, case.microbatches)
    run = apply_settings(replace(base, mesh=shape, batch=batch), case.settings.split())
    cluster = catalog.load(case.cluster)
    return run, shape, catalog.load(case.cluster, -(-shape.devices // cluster.devices_per_node))


def compared(case: Case) -> Result:
    """Both programs of a case, priced by the same figures."""
    run, shape, cluster = described(case)
    profile = profile_of(cluster.accelerator)
    programs = program_of_run(run, shape, cluster)[0], analytic_program(run, shape)
    priced = [price(program, cluster, profile) for program in programs]
    found, expected = (figures(each) for each in priced)
    result = Result(case, found, expected, ())
    return replace(result, causes=tuple(causes(result, priced[0], run, shape)))


def compared_again(case: Case, stored: dict[str, Any]) -> Result:
    """The closed form of a case by today's sources, beside the stored figures of the compiled one.

    What the compiler does beside the run cannot be said again: causes are the parts that differ.
    """
    run, shape, cluster = described(case)
    priced = price(analytic_program(run, shape), cluster, profile_of(cluster.accelerator))
    result = Result(case, Figures(**stored["compiled"]), figures(priced), ())
    return replace(result, causes=tuple(differences(result)))


def kept(case: Case, stored: dict[str, Any]) -> Result:
    """A case as it is stored."""
    found, expected = (Figures(**stored[name]) for name in ("compiled", "analytic"))
    return Result(case, found, expected, tuple(stored["causes"]))


def figures(priced: Priced) -> Figures:
    """The figures of one priced program."""
    moved: dict[str, float] = defaultdict(float)
    for call, calls in running_collectives(priced):
        if float(call.bytes) >= SMALLEST:
            moved[f"{'+'.join(call.axes)} {call.kind}"] += float(call.bytes * calls)
    parts: dict[str, float] = defaultdict(float)
    for kernel, _ in running_kernels(priced):
        parts[_part(kernel)] += float(priced.timeline.by_name[kernel.name])
    for call, _ in running_collectives(priced):
        waited = priced.timeline.exposed_by_name.get(call.name, 0.0)
        parts[f"{WAITING} {call.kind} over {'+'.join(call.axes)}"] += float(waited)
    use = priced.memory.by_category
    return Figures(
        float(sum(kernel.flops * calls for kernel, calls in running_kernels(priced))),
        dict(moved),
        {name: float(use.get(name, 0.0)) for name in CATEGORIES if name != "pinned_host"},
        float(priced.timeline.total),
        dict(parts),
    )


def _part(kernel: Kernel) -> str:
    """Where a kernel belongs: its phase, part of the model, and whether it multiplies."""
    phase = "backward" if kernel.origin.phase == "remat" else kernel.origin.phase or "other"
    kind = (
        kernel.kind if kernel.kind in ("matmul", "grouped", "attention") else "fusions and copies"
    )
    layer = kernel.origin.layer.split("/")[0]
    where = {"loss": "head", "embed": "embedding"}.get(layer, layer)
    return " ".join(filter(None, [phase, where, kind]))


def causes(result: Result, compiled: Priced, run: Run, shape: MeshShape) -> Iterable[str]:
    """Why a goal is missed: what the compiler does, or the largest part that differs."""
    missed = result.missed
    again = any(REMAT_SUFFIX in kernel.name for kernel, _ in kernels(compiled.program))
    again = again or any(REMAT_SUFFIX in call.name for call, _ in collectives(compiled.program))
    if missed and again:
        yield "XLA computes again what it expects not to fit"
    if {"flops", "bytes"} & {*missed}:
        for found in audit(compiled, run, shape):
            what = "FLOPs" if found.kind == PRODUCTS else f"{found.kind} over {found.axes}"
            yield f"{what}: {found.reason}"
    yield from differences(result)


def differences(result: Result) -> Iterable[str]:
    """The largest part that differs, of memory and of time, where a goal is missed."""
    missed, one, other = result.missed, result.compiled, result.analytic
    if "memory" in missed:
        gaps = {name: other.memory[name] - one.memory[name] for name in one.memory}
        name = max(gaps, key=lambda name: abs(gaps[name]))
        yield f"memory, mostly {name}: {format_size(one.memory[name])} compiled"
    if "time" in missed:
        keys = {*one.parts, *other.parts}
        gaps = {key: other.parts.get(key, 0.0) - one.parts.get(key, 0.0) for key in keys}
        for key in sorted(gaps, key=lambda key: -abs(gaps[key]))[:2]:
            if abs(gaps[key]) > NOTED * one.time:
                times = format_time(one.parts.get(key, 0.0)), format_time(other.parts.get(key, 0.0))
                yield f"time of {key}: {times[0]} compiled, {times[1]} in closed form"


def table(results: Sequence[Result]) -> str:
    """All cases, then the errors in all, then the causes of missed goals."""
    rows: list[tuple[str, ...]] = [
        ("case", "FLOPs", "bytes", "memory", "step", "compiled", "step time")
    ]
    for r in results:
        shown = [f"{100 * r.errors[name]:+.1f} %" for name in GOALS]
        rows.append(
            (r.case.name, *shown, format_size(r.compiled.peak), format_time(r.compiled.time))
        )
    lines = [*columns(rows, left=(0,)), ""]
    groups = {"all": results, "unseen": [r for r in results if r.case in UNSEEN]}
    for words, chosen in groups.items():
        for name, goal in GOALS.items() if chosen else ():
            errors = [abs(r.errors[name]) for r in chosen]
            lines.append(
                f"{words}, {name}: within {goal:.0%} in {sum(e <= goal for e in errors)} of "
                f"{len(errors)}; median {median(errors):.1%}, mean {mean(errors):.1%}, "
                f"worst {max(errors):.1%}"
            )
    lines.append("")
    for r in results:
        lines += [f"{r.case.name}: {cause}" for cause in r.causes]
    return "\n".join(lines)


def programs(results: Sequence[Result], before: Mapping[str, Figures]) -> str:
    """The compiled programs, beside those of the same name of before where they are others."""
    rows: list[tuple[str, ...]] = [("case", "step", "exposed", "peak", "FLOPs over needed")]
    for r in results:
        run, shape, _ = described(r.case)
        needed = float(model_flops(run.model, run.batch.global_batch, run.batch.seq_len))
        shown = [
            (
                *(format_time(each.time), format_time(each.exposed), format_size(each.peak)),
                f"{each.flops * shape.devices / needed:.3f}",
            )
            for each in (before.get(r.case.name), r.compiled)
            if each is not None
        ]
        pairs = zip(*shown, strict=True)
        rows.append((r.case.name, *(" -> ".join(dict.fromkeys(pair)) for pair in pairs)))
    return "\n".join(columns(rows, left=(0,)))


def save(
    results: Sequence[Result],
    folder: Path,
    against: Path | None = None,
    only: str = "",
    before: Path | None = None,
) -> Path:
    """Write the results below `folder`, in one of this day."""
    place = folder / f"{date.today().isoformat()}-front-ends"
    place.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "date": date.today().isoformat(),
        "versions": compiler_versions(),
        "commit": git_commit(),
        "cases": [
            {"name": r.case.name, "errors": r.errors, "causes": r.causes, **asdict(r)}
            for r in results
        ],
    }
    packages = ", ".join(f"{name} {found}" for name, found in document["versions"].items())
    page = [
        "# Do the two front ends agree?",
        "",
        f"{document['date']}, {packages}, commit {document['commit']}.",
        "",
        "Made by `python -m experiments.front_ends`: each case is compiled without a GPU, priced,",
        "and so is its closed form (`scaling/analytic`), by the same figures. Closed form over",
        "compiled, less 1; bytes: the worst of (axes, kind) over all bytes of a step, in calls of",
        "64 KiB and more. Below: each missed goal with its cause.",
        f"{f'Names with {only} are compiled anew, the others' if only else 'Compiled figures'} are "
        f"those of `{against.parent.name}`."
        if against
        else "Unseen are the last six cases.",
        "",
        f"```\n{table(results)}\n```\n",
        "## The compiled programs",
        "",
        f"Before: those of `{before.parent.name}`, where they were others." if before else "",
        "",
        f"```\n{programs(results, compiled_of(before))}\n```\n",
    ]
    (place / "README.md").write_text("\n".join(page), encoding="utf-8")
    path = place / "front_ends.json"
    path.write_text(json.dumps(document) + "\n", encoding="utf-8")
    return path


def compiled_of(path: Path | None) -> dict[str, Figures]:
    """The compiled figures of a results file by case; of None no case."""
    cases = json.loads(path.read_text(encoding="utf-8"))["cases"] if path else ()
    return {case["name"]: Figures(**case["compiled"]) for case in cases}


def main(arguments: list[str] | None = None) -> None:
    """Compile and compare all cases, print the table, save the results."""
    parser = argparse.ArgumentParser(prog="python -m experiments.front_ends")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--only", nargs="*", help="compile cases whose name has one of these texts")
    parser.add_argument("--against", type=Path, help="a results file: all other cases are its own")
    parser.add_argument("--before", type=Path, help="a results file: programs that were others")
    args = parser.parse_args(arguments)
    stored = json.loads(args.against.read_text(encoding="utf-8"))["cases"] if args.against else ()
    known = {each["name"]: each for each in stored}
    only = args.only if args.only is not None else [""] * (not args.against)
    results = []
    for case in (*CASES, *UNSEEN):
        if any(text in case.name for text in only):
            import jax

            jax.config.update("jax_platforms", "cpu")  # the devices compiled for are not here
            results.append(compared(case))
            print({k: round(v, 3) for k, v in results[-1].errors.items()}, case.name, flush=True)
            jax.clear_caches()
        elif case.name in known:
            results.append((kept if only else compared_again)(case, known[case.name]))
    path = save(results, args.out, args.against, " or ".join(only), args.before)
    shown = programs(results, compiled_of(args.before))
    print(f"\n{table(results)}\n\n{shown}\nresults: {path}")


if __name__ == "__main__":
    main()
