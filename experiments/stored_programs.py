"""The compiled programs that come with the package (scaling/program/data).

    python -m experiments.stored_programs            compiles those that are not there, seconds each
    python -m experiments.stored_programs --list     names them all

Each is the trainer's own step for a cluster that nobody here has. They are chosen in groups, each
one comparison that a lesson or the explorer makes: the same model on other meshes, or with another
policy of what is kept for the backward pass.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from scaling.api.predict import predict
from scaling.api.runs import load_run
from scaling.meshes.errors import InputError
from scaling.program.serialization import program_dict
from scaling.program.stored import FOLDER, INDEX, StoredProgram, stored_programs
from scaling.program.versions import compiler_versions
from scaling.simulate.resolve import target
from scaling.training.program import stored_key

Settings = dict[str, Any]
SELECTIVE: Settings = {"remat": "selective"}
EACH: Settings = {
    "sharding.zero_stage": 3
}  # weights gathered in each layer, on stages as elsewhere


@dataclass(frozen=True)
class Wanted:
    """A program to compile, by the arguments of `sc.predict`."""

    group: str
    run: str
    mesh: str
    nodes: int = 1
    cluster: str = "dgx-h100"
    set: Settings = field(default_factory=dict)


def wanted() -> Iterator[Wanted]:
    """Every program that comes with the package."""
    yield from _data_parallel()
    yield from _tensor()
    yield from _splits()
    yield from _experts()
    yield from _pipelines()
    yield from _contexts()
    yield from _remat()
    yield from _large()
    yield from _machines()
    yield from _batches()
    yield from _shards()
    yield from _models()
    yield from _formats()


def _data_parallel() -> Iterator[Wanted]:
    """Replicas or shards, from one GPU to eight nodes, and how small a batch still hides them."""
    for name, batches in (("gpt2-124m", (512,)), ("gpt2-1.5b", (512, 64)), ("qwen3-0.6b", (256,))):
        for batch in batches:
            settings = {**SELECTIVE, "batch.global_batch": batch}
            for mesh in ("data=8", "fsdp=8", "data=2,fsdp=4"):
                yield Wanted("data and fsdp in a node", name, mesh, 1, set=settings)
    for nodes, mesh in ((1, "fsdp=8"), (2, "fsdp=16"), (4, "fsdp=32"), (8, "fsdp=64")):
        settings = {**SELECTIVE, "batch.global_batch": 64, "batch.microbatches": 1}
        yield Wanted("strong scaling", "llama3-1b", mesh, nodes, set=settings)
        weak = {**SELECTIVE, "batch.global_batch": 8 * nodes, "batch.microbatches": 1}
        yield Wanted("weak scaling", "llama3-1b", mesh, nodes, set=weak)


def _tensor() -> Iterator[Wanted]:
    """Tensor parallelism in a node and beyond it."""
    for tensor in (1, 2, 4, 8):
        settings = {**SELECTIVE, "batch.global_batch": 16, "batch.microbatches": 2}
        mesh = f"fsdp={8 // tensor},tensor={tensor}"
        yield Wanted("tensor in a node", "llama3-8b", mesh, set=settings)
    for mesh in ("fsdp=8,tensor=2", "fsdp=4,tensor=4", "fsdp=2,tensor=8"):
        settings = {**SELECTIVE, "batch.global_batch": 16, "batch.microbatches": 2}
        yield Wanted("tensor over two nodes", "llama3-8b", mesh, 2, set=settings)


def _splits() -> Iterator[Wanted]:
    """64 GPUs: every split of fsdp, tensor and data, on three clusters."""
    for cluster in ("dgx-h100", "dgx-a100", "dgx-h200"):
        for mesh in (
            *("fsdp=64", "data=8,fsdp=8", "fsdp=32,tensor=2", "fsdp=16,tensor=4"),
            *("fsdp=8,tensor=8", "data=4,fsdp=8,tensor=2", "data=2,fsdp=8,tensor=4"),
        ):
            settings = {**SELECTIVE, "batch.global_batch": 128, "batch.microbatches": 1}
            yield Wanted("splits of 64 GPUs", "llama3-8b", mesh, 8, cluster, settings)


def _experts() -> Iterator[Wanted]:
    """Experts over more and more devices."""
    for mesh in ("fsdp=64", "fsdp=32,expert=2", "fsdp=16,expert=4", "fsdp=8,expert=8"):
        settings = {"batch.global_batch": 128, "batch.microbatches": 1, "remat": "full"}
        yield Wanted("experts", "mixtral-8x7b", mesh, 8, set=settings)


def _pipelines() -> Iterator[Wanted]:
    """Stages, microbatches and schedules: the bubble."""
    for stages, microbatches in ((2, 8), (4, 4), (4, 8), (4, 16), (8, 16)):
        mesh = f"stage={stages},fsdp={8 // stages}"
        settings = {**SELECTIVE, "batch.global_batch": 128, "batch.microbatches": microbatches}
        yield Wanted("pipelines", "llama3-1b", mesh, set=settings)
    settings = {**SELECTIVE, "batch.global_batch": 128, "batch.microbatches": 8}
    more: Settings = {"pipeline.schedule": "interleaved", "pipeline.virtual_stages": 2}
    yield Wanted("pipelines", "llama3-1b", "stage=4,fsdp=2", set={**settings, **more, **EACH})


def _contexts() -> Iterator[Wanted]:
    """Long sequences over more and more devices, by ring and by all-gather."""
    for tokens in (8192, 32768, 131072):
        for context in (1, 2, 8):
            batch = max(8 // context, 1) * max(1, 32768 // tokens)
            settings = {
                **{"remat": "full", "batch.seq_len": tokens, "batch.microbatches": 1},
                "batch.global_batch": batch,
            }
            mesh = f"fsdp={8 // context},context={context}"
            yield Wanted("long sequences", "llama3-1b", mesh, set=settings)
    more = {"batch.seq_len": 32768, "batch.microbatches": 1, "batch.global_batch": 1}
    gather = {"remat": "full", **more, "context.method": "all-gather"}
    yield Wanted("long sequences", "llama3-1b", "context=8", set=gather)


def _remat() -> Iterator[Wanted]:
    """What is kept for the backward pass."""
    for remat in ("none", "selective", "full"):
        settings = {"remat": remat, "batch.global_batch": 8, "batch.microbatches": 1}
        yield Wanted("remat", "llama3-8b", "fsdp=8", set=settings)
        yield Wanted("remat", "llama3-8b", "fsdp=8", 1, "dgx-h200", settings)
        yield Wanted("remat", "llama3-1b", "fsdp=8", set=settings)


def _large() -> Iterator[Wanted]:
    settings = {**SELECTIVE, "batch.global_batch": 512, "batch.microbatches": 1}
    for mesh in ("fsdp=512", "fsdp=64,tensor=8", "fsdp=128,tensor=4", "stage=4,fsdp=16,tensor=8"):
        staged = {"batch.microbatches": 8, **EACH} if "stage" in mesh else {}
        for cluster in ("dgx-h100", "dgx-h200"):
            what = Wanted("70B on 512", "llama3-70b", mesh, 64, cluster, {**settings, **staged})
            yield what
    full = {"remat": "full", "batch.global_batch": 1024, "batch.microbatches": 1}
    yield Wanted("405B", "llama3-405b", "fsdp=128,tensor=8", 128, set=full)


def _machines() -> Iterator[Wanted]:
    """One step on servers of one generation after the other, and on those without NVLink."""
    settings = {"remat": "full", "batch.global_batch": 16, "batch.microbatches": 2}
    for cluster in (
        *("dgx-a100-40g", "dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200"),
        *("h100-pcie-8", "l40s-8", "rtx4090-8", "rtx-pro-6000-8"),
    ):
        yield Wanted("one node of each generation", "llama3-1b", "fsdp=8", 1, cluster, settings)
    for mesh in ("data=1", "data=2", "data=4", "data=8", "data=10", "fsdp=2", "fsdp=4", "fsdp=8"):
        devices = int(mesh.partition("=")[2])
        own = {"batch.global_batch": 4 * devices, "batch.microbatches": 1}
        yield Wanted("ten RTX 3090 on PCIe", "gpt-305m", mesh, 1, "rtx3090-10", own)
    for cluster, nodes in (("dgx-b200", 8), ("gb200-nvl72", 16)):
        for mesh in ("fsdp=64", "data=8,fsdp=8", "fsdp=16,tensor=4", "fsdp=8,tensor=8"):
            more = {**SELECTIVE, "batch.global_batch": 128, "batch.microbatches": 1}
            yield Wanted("splits of 64 GPUs", "llama3-8b", mesh, nodes, cluster, more)


def _batches() -> Iterator[Wanted]:
    """The batch, in one piece or in microbatches whose gradients are added up."""
    for batch in (8, 16, 32, 64, 128):
        settings = {**SELECTIVE, "batch.global_batch": batch, "batch.microbatches": 1}
        yield Wanted("batch of eight GPUs", "llama3-1b", "fsdp=8", set=settings)
    for microbatches in (1, 2, 4, 8):
        settings = {**SELECTIVE, "batch.microbatches": microbatches, "batch.global_batch": 512}
        yield Wanted("microbatches", "llama3-8b", "data=8,fsdp=8", 8, set=settings)


def _shards() -> Iterator[Wanted]:
    """What is sharded: ZeRO's stages, and where a pipeline of a large model cuts."""
    for name, batch in (("gpt2-1.5b", 64), ("llama3-8b", 16)):
        settings = {**SELECTIVE, "batch.global_batch": batch, "batch.microbatches": 2}
        yield Wanted("stages of ZeRO", name, "data=8", set=settings)
        for stage in (1, 3):
            zero = {**settings, "sharding.zero_stage": stage}
            yield Wanted("stages of ZeRO", name, "fsdp=8", set=zero)
    for cluster in ("p4d", "p5e"):
        settings = {"remat": "full", "batch.seq_len": 4096, "batch.global_batch": 128}
        for mesh in ("fsdp=32", "data=32", "fsdp=16,tensor=2", "stage=2,fsdp=16"):
            staged = {"batch.microbatches": 4, **EACH} if "stage" in mesh else {}
            own = {**settings, "batch.microbatches": 1, **staged}
            yield Wanted("A100 against H200", "qwen3-0.6b", mesh, 4, cluster, own)
    for stages, fsdp, tensor in ((1, 8, 8), (2, 4, 8), (4, 2, 8), (8, 1, 8), (8, 2, 4)):
        mesh = f"stage={stages},fsdp={fsdp},tensor={tensor}"
        settings = {"remat": "full", "batch.global_batch": 64, "batch.microbatches": 16}
        if stages == 1:
            settings["batch.microbatches"] = 1
        elif fsdp > 1:
            settings |= EACH
        yield Wanted("70B in stages", "llama3-70b", mesh, 8, set=settings)


def _models() -> Iterator[Wanted]:
    """Dense models of all sizes on one mesh, and experts of another family."""
    settings = {**SELECTIVE, "batch.global_batch": 128, "batch.microbatches": 1}
    for name in ("qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b"):
        yield Wanted("models of all sizes", name, "fsdp=64", 8, set=settings)
    for mesh in ("fsdp=32", "fsdp=16,expert=2", "fsdp=8,expert=4", "fsdp=4,expert=8"):
        own = {"remat": "full", "batch.global_batch": 64, "batch.microbatches": 1}
        yield Wanted("many small experts", "qwen3-30b-a3b", mesh, 4, set=own)
    for mesh in ("fsdp=64", "fsdp=32,expert=2", "fsdp=16,expert=4", "fsdp=8,expert=8"):
        own = {"remat": "full", "batch.global_batch": 128, "batch.microbatches": 1}
        yield Wanted("experts", "mixtral-8x7b", mesh, 8, "dgx-h200", own)


def _formats() -> Iterator[Wanted]:
    """Formats of products, optimizers and attention, one change at a time."""
    settings = {**SELECTIVE, "batch.global_batch": 16, "batch.microbatches": 1}
    for more in (
        {},
        {"precision.compute": "fp32"},
        {"precision.reduce": "fp32"},
        {"precision.optimizer_state": "bf16"},
        {"optimizer": "adafactor"},
        {"optimizer": "lion"},
        {"optimizer": "muon"},
        {"attention": "unfused", "batch.seq_len": 2048},
        {"attention": "flash", "batch.seq_len": 2048},
    ):
        yield Wanted("one change at a time", "llama3-1b", "fsdp=8", set={**settings, **more})


def compile_all(folder: Path) -> None:
    """Compile what is not there; the index is written anew, what nobody wants is removed.

    A program of several comparisons is kept once and named once for each.
    """
    folder.mkdir(exist_ok=True)
    known = {entry.key: entry for entry in stored_programs()}
    index: dict[tuple[str, str], StoredProgram] = {}
    for want in wanted():
        try:
            entry = _made(want, folder, known)
        except InputError as error:
            print(f"not made: {want}: {error}", file=sys.stderr, flush=True)
            continue
        known[entry.key] = index[entry.key, want.group] = replace(entry, group=want.group)
        _write_index(folder, [*index.values()])
    for file in folder.glob("*.json.gz"):
        if file.name.partition(".")[0] not in {key for key, _ in index}:
            file.unlink()


def _made(want: Wanted, folder: Path, known: dict[str, StoredProgram]) -> StoredProgram:
    place = target(load_run(want.run, mesh=want.mesh, set=want.set), want.cluster, want.nodes)
    key = stored_key(place.run, place.mesh, place.cluster)
    file = folder / f"{key}.json.gz"
    if key in known and file.exists():
        return known[key]
    # A run that is described whole is compiled as it is, also where it does not fit.
    result = predict(place.run, want.cluster, want.nodes, source="compiled")
    program = replace(result.pricing.program, places={})  # lines move, and nothing shows them
    data = gzip.compress(json.dumps(program_dict(program)).encode(), mtime=0)
    file.write_bytes(data)
    print(f"{key} {len(data):,} bytes {result.pricing.compile_seconds:.1f} s {want}", flush=True)
    today = date.today().isoformat()
    where = (want.run, want.cluster, want.nodes, want.mesh, want.set)
    return StoredProgram(key, *where, want.group, compiler_versions(), today)


def _write_index(folder: Path, entries: list[StoredProgram]) -> None:
    lines = ",\n".join(json.dumps(asdict(entry)) for entry in entries)
    (folder / INDEX).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    if "--list" in sys.argv:
        for number, want in enumerate(wanted()):
            print(number, want)
    else:
        compile_all(Path(str(FOLDER)))
