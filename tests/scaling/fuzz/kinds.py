"""What is damaged, and what reads it: for each kind of input whole examples, and a reader."""

import io
import json
import shlex
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import jax
import numpy as np
from safetensors.numpy import save_file

import scaling as sc
from experiments.chat.make import HERE
from scaling.cli import main as cli
from scaling.comparing.recorded import recorded_events
from scaling.meshes import catalog
from scaling.meshes.catalog.load import ACCELERATORS, CLUSTERS, read_toml
from scaling.meshes.devices import host_mesh
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.run import Train, run_dict
from scaling.run.recipes import recipe
from scaling.testbed.plan import TestbedConfig
from scaling.testbed.state import read_state, write_state
from scaling.training.checkpoint.checkpoints import Checkpoints
from scaling.training.checkpoint.resume import changes
from scaling.training.data.batches import TrainingBatches
from scaling.training.data.chat import ask
from scaling.training.data.sources import open_data
from scaling.training.data.sums import DATA, changed_files
from scaling.training.data.tokenizer import open_tokenizer
from scaling.training.data.tokens import TokenSplit, Windows
from scaling.training.run_folder.checksums import write_checksums
from scaling.training.run_folder.measured import (
    ENVIRONMENT,
    MEASURED,
    VERSIONS,
    rebuild_measured,
)
from scaling.training.run_folder.metrics import mend_metrics, read_metrics
from scaling.training.run_folder.steps import RECORD, begin, own_steps
from scaling.training.weights.imported import WeightFiles
from scaling.training.weights.naming import reorder_layers
from tests.scaling.fuzz.mutations import as_json, as_toml, mutated, shuffled, turned

TESTS = Path(__file__).parents[2]
TOKENIZER = HERE / "tokenizer"
GOLDEN = sorted((TESTS / "scaling/hlo/golden").glob("jax-0.10-*.hlo"))
PUBLISHED = json.loads((TESTS / "models/huggingface/published.json").read_text())
OPERATIONS = ("all_gather.3.2", "loop_multiply_fusion.1", "psum.7.2", "gemm_fusion_dot_general.3")
CLUSTER = "dgx-h100"
LINES = b"\n"


class Kind(NamedTuple):
    """One kind of input."""

    name: str  # of the file, below the folder of the case
    examples: list[Any]  # documents or texts
    read: Callable[[Path], object]  # InputError where the input is refused
    write: Callable[[Any], bytes] | None = as_json  # None: the examples are texts
    beside: Path | None = None  # a folder with the files that belong to it

    def draw(self, random: Random) -> bytes:
        """A damaged example."""
        example = random.choice(self.examples)
        if self.write is None:
            return random.choice((turned, shuffled))(example, random)
        if random.random() < 0.7:
            return self.write(mutated(example, random))
        return turned(self.write(example), random)


def command(*words: object) -> None:
    """Execute a command line; InputError where it is refused."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        code = cli.main([str(word) for word in words])
    if code == 2:
        raise InputError(said.getvalue())
    assert code == 0, f"exit code {code}: {said.getvalue()}"


def run(path: Path) -> None:
    """Print what the file resolves to, its shardings and its price by closed forms."""
    command("config", path)
    command("sharding", path)
    command("predict", path, "--source", "analytic", "--cluster", CLUSTER)


def cluster(path: Path) -> None:
    """Check a cluster file, draw it, and price a collective between two of its nodes."""
    command("cluster", "check", path)
    command("cluster", "show", path, "--nodes", 2)
    command("collective", "all-reduce", "--cluster", path, "--nodes", 2, "--bytes", "1MiB")


def accelerator(path: Path) -> None:
    """Check a chip's file, and read the chip."""
    command("cluster", "check", path)
    catalog.accelerator(path)


def calibration(path: Path) -> None:
    """Price a collective and a program with the profile."""
    command("collective", "all-gather", "--cluster", CLUSTER, "--calibration", path)
    sc.predict_hlo(GOLDEN[-1], CLUSTER, calibration=path)


def hlo(path: Path) -> None:
    """Price a program's text."""
    sc.predict_hlo(path.read_text(errors="replace"), CLUSTER)


def profile(path: Path) -> None:
    """Read a recording, and hold the program of the example beside one of GPUs."""
    if all(event.run is None for event in recorded_events(path)):
        sc.predict_hlo(GOLDEN[-1], CLUSTER).compare(path)


def weights(path: Path) -> None:
    """Read every tensor of a folder of safetensors files."""
    files = WeightFiles(path.parent)
    for name in files.tensors:
        files.read(name, (slice(0, 1),))


def words(path: Path) -> None:
    """Execute the command line in a file; exit code 1 is one of `cluster` alone."""
    try:
        given = shlex.split(path.read_text(errors="surrogateescape"))
    except ValueError:  # quotes that are not closed, which no shell would hand on
        return
    given = [word for word in given if "\0" not in word]
    if given and given[0] in HARMLESS and HARMLESS[given[0]] <= set(given):
        command(*given)


def checkpoint(path: Path) -> None:
    """Restore a checkpoint whose files are as its checksums say, as `--resume` does."""
    step = next(parent for parent in path.parents if parent.name.startswith("step_"))
    write_checksums(step)
    described = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
    now = recipe("tiny")
    with jax.set_mesh(host_mesh(MeshShape())):
        wanted = jax.tree.map(described, state())
        with Checkpoints(step.parent) as checkpoints:
            arrays, place, saved = checkpoints.restore(wanted)
        reorder_layers(arrays, saved, now)
    list(changes(saved, run_dict(now)))
    batches = tiny_batches()
    try:
        batches.set_state(place)
    finally:
        batches.close()


def written(path: Path) -> None:
    """Begin a step, by the record of what the run wrote."""
    own_steps(path.parent)
    begin(path.parent, 4)


def metrics(path: Path) -> None:
    """Read the lines, write those again that are lacking, and the measurement of them."""
    text = path.read_bytes()
    mend_metrics(path.parent, [{"step": 4, "loss": 1.0}], 4)
    (path.parent / MEASURED).unlink(missing_ok=True)
    rebuild_measured(path.parent)
    path.write_bytes(text)
    read_metrics(path)


def compare(path: Path) -> None:
    """Compare the run that the folder holds."""
    command("compare", path.parent)


def data(path: Path) -> None:
    """Open the records of a file."""
    open_data(Train(data=str(path), documents="packed"), 256, 32)


def tokenizer(path: Path) -> None:
    """Encode, decode, and write a chat."""
    opened = open_tokenizer(str(path.parent), 512)
    ids, _ = opened.encode(["4 + 8 = 12, é"])[0]
    opened.decode(ids)
    ask(opened, "What is 4 + 8?")


def testbed(path: Path) -> None:
    """Read the record of a testbed."""
    read_state("lab", path.parent)


def shipped(kind: str, *names: str) -> list[dict[str, Any]]:
    """Files of the catalogue."""
    return [read_toml(name, kind)[0] for name in names]


def calibrations() -> list[dict[str, Any]]:
    """The shipped profile of a chip, in full."""
    from scaling.profiles.io import profile_of

    return [asdict(profile_of(catalog.load(CLUSTER).accelerator))]


def safetensors(folder: Path) -> bytes:
    """A file of two small tensors."""
    path = folder / "model.safetensors"
    save_file({"a": np.arange(6.0).reshape(2, 3), "b": np.zeros(4, np.float16)}, path)
    return path.read_bytes()


def recording(plane: str, line: str) -> bytes:
    """A recording of two executions of the last program in GOLDEN, as jax.profiler writes it."""
    stats = ("hlo_op", "hlo_module", "device_ordinal", "run_id", "_p", "_c")
    text, names = "", {name: str(n) for n, name in enumerate(OPERATIONS, 1)}
    for at in range(2 * len(OPERATIONS)):
        name = OPERATIONS[at % len(OPERATIONS)]
        values = f'"{name}"', '"jit_one_of_each"', "0", str(at // len(OPERATIONS)), str(at), str(at)
        given = zip(("str_value", "str_value", *["int64_value"] * 4), values, strict=True)
        each = (f"stats {{ metadata_id: {n} {k}: {v} }}" for n, (k, v) in enumerate(given, 1))
        times = f"offset_ps: {at * 10_000} duration_ps: 9000"
        text += f"events {{ metadata_id: {names[name]} {times} {' '.join(each)} }}\n"
    known = {"event_metadata": list(OPERATIONS), "stat_metadata": list(stats)}
    tables = "".join(
        f'{table} {{ key: {n} value {{ id: {n} name: "{name}" }} }}\n'
        for table, all_names in known.items()
        for n, name in enumerate(all_names, 1)
    )
    lines = f'lines {{ id: 1 name: "{line}" {text} }}\n'
    whole = f'planes {{ name: "{plane}"\n{lines}{tables}}}\n'
    return jax.profiler.ProfileData.text_proto_to_serialized_xspace(whole)


def trace() -> dict[str, Any]:
    """The same of a GPU, in Chrome's format."""
    named = lambda what, name: {
        **{"ph": "M", "pid": 1, "tid": 2},
        **{"name": f"{what}_name", "args": {"name": name}},
    }
    events = [
        {"ph": "X", "pid": 1, "tid": 2, "ts": 10.5 + 3 * at, "dur": 2.5, "name": f"{name}_kernel"}
        | {"args": {"hlo_op": name, "hlo_module": "jit_one_of_each"}}
        for at, name in enumerate(2 * OPERATIONS)
    ]
    names = [named("process", "/device:GPU:0"), named("thread", "Stream #13(Compute)")]
    return {"traceEvents": [*names, *events]}


def state() -> dict[str, jax.Array]:
    """A small state."""
    return {"layers/x": jax.numpy.zeros((2, 3)), "step": jax.numpy.int32(3)}


def tiny_batches() -> TrainingBatches:
    """Batches of the recipe `tiny`, of made tokens."""
    tokens = np.zeros(1000, np.uint16)
    windows = Windows(tokens, 32, 256, "zeros")
    return TrainingBatches(TokenSplit(windows, windows, "zeros"), 8, 0)


def saved_checkpoint(folder: Path) -> Path:
    """The folder of a checkpoint of the small state."""
    batches = tiny_batches()
    with Checkpoints(folder) as checkpoints:
        checkpoints.save(3, state(), batches.get_state(), run_dict(recipe("tiny")))
    batches.close()
    return folder


def unmeasured(folder: Path) -> Path:
    """The folder of a run that lacks what is made again of its metrics."""
    place = folder / "unmeasured"
    place.mkdir()
    (place / "run.json").write_bytes(as_json({"name": "toy"}))
    environment = {"began": 0.0, "machine": "toy", "versions": dict.fromkeys(VERSIONS, "1")}
    (place / ENVIRONMENT).write_bytes(as_json(environment))
    return place


def documents(folder: Path, *names: str) -> list[Any]:
    """What JSON files hold."""
    return [json.loads((folder / name).read_text()) for name in names]


# Commands that write no file and, with these words, neither measure this machine nor compile.
HARMLESS: dict[str, set[str]] = {
    **{name: set() for name in ("config", "sharding", "collective", "cluster", "compare", "array")},
    **{"predict": {"--cluster", "analytic"}, "plan": {"--cluster"}},
}
MESHES = "data=2,fsdp=4 fsdp=8 tensor=2 data=2,stage=2,tensor=2 fsdp=2,context=4".split()
ARGUMENTS = [
    *(f"sharding tiny --mesh {mesh}" for mesh in MESHES),
    "config tiny --set batch.microbatches=2 --set train.learning_rate=1e-3 --json",
    "predict tiny --source analytic --mesh data=8 --cluster dgx-h100 --what-if 'network x0.5'",
    "predict llama3-8b --source analytic --cluster dgx-h100 --nodes 8 --explain --json",
    "collective all-reduce --bytes 1MiB,1GiB --cluster dgx-h100 --nodes 4 --mesh data=4,tensor=8"
    " --axis data --algorithm ring",
    "collective all-to-all --sweep 1KiB:8GiB --cluster gb200-nvl72 --skew 1.5",
    "cluster show dgx-h100 --nodes 2 --override node_network_bandwidth=400Gb/s",
    "plan tiny --cluster dgx-h100",
    "array 'A[I_X,J_Y] @ B[J_Y,K] -> C[I_X,K]' --mesh X=4,Y=2 --shape I=64,J=64,K=64",
    "array 'bf16[64_XY,64]{U_Z} -> [64,64_X]' --mesh X=2,Y=2,Z=2 --cluster dgx-h100 --json",
    "collective all-to-all --cluster dgx-h100 --devices 0,1:2,3 --active 2 --random --ideal --hops",
]


def kinds(runs: list[dict[str, Any]], run_folder: Path, folder: Path) -> Mapping[str, Kind]:
    """Every kind of input by name; `folder` is for files that examples are made with."""
    saved, step = saved_checkpoint(folder / "checkpoints"), "step_00000003"
    write_state(TestbedConfig("lab", "0123abcd", 2, 2, 10**9), folder)
    record = json.loads((folder / "lab.json").read_text())
    index = {"metadata": {}, "weight_map": {"a": "model.safetensors", "b": "model.safetensors"}}
    times = {"time": 0.1, "step_time": 0.1, "peak_memory": 9}
    lines = [{"step": n, "loss": 5.0 - n, "tokens_seen": 256 * n, **times} for n in (1, 2, 3, 4, 5)]
    sums = {"sources": [{"data": "a", "files": {"": [9, 7]}}], "tokenizer": {"b.json": [9, 8]}}
    as_list = lambda value: value if isinstance(value, list) else [value]
    jsonl = lambda records: LINES.join(as_json(record) for record in as_list(records)) + LINES
    clusters = shipped(CLUSTERS, "dgx-h100", "gb200-nvl72", "tpu-v5p", "h100-pcie-8")
    parts = {
        "checkpoint": f"{step}/_CHECKPOINT_METADATA",
        "arrays": f"{step}/state/_METADATA",
    }
    files = {name: f"{name}.json" for name in ("program", "predicted", "measured")}
    of_ours = {
        **{n: Kind(f, documents(saved, f), checkpoint, beside=saved) for n, f in parts.items()},
        **{
            n: Kind(f, documents(run_folder, f), compare, beside=run_folder)
            for n, f in files.items()
        },
        **{
            n: Kind(f"{n}.json", documents(TOKENIZER, f"{n}.json"), tokenizer, beside=TOKENIZER)
            for n in ("tokenizer", "tokenizer_config")
        },
    }
    chats = [
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    ]
    return of_ours | {
        "run": Kind("run.json", runs, run),
        "cluster": Kind("mine.toml", clusters, cluster, as_toml),
        "accelerator": Kind("mine.toml", shipped(ACCELERATORS, "h100-sxm"), accelerator, as_toml),
        "calibration": Kind("calibration.json", calibrations(), calibration),
        "config": Kind(
            "config.json", list(PUBLISHED.values()), lambda path: command("sharding", path)
        ),
        "hlo": Kind("step.hlo", [path.read_bytes() for path in GOLDEN], hlo, None),
        "profile": Kind(
            "host.xplane.pb",
            [recording("/device:GPU:0", "Stream #1"), recording("/host:CPU", "tf_XLAEigen/1")],
            profile,
            None,
        ),
        "trace": Kind("host.trace.json", [trace()], profile),
        "safetensors": Kind("model.safetensors", [safetensors(folder)], weights, None),
        "index": Kind("model.safetensors.index.json", [index], weights),
        "metrics": Kind("metrics.jsonl", [lines], metrics, jsonl, unmeasured(folder)),
        "data": Kind("data.jsonl", [[{"text": "some words"}] * 40, chats * 40], data, jsonl),
        "written": Kind(RECORD, documents(saved, RECORD), written, beside=saved),
        "sums": Kind(DATA, [sums], lambda path: changed_files(path.parent, sums)),
        "testbed": Kind("lab.json", [record], testbed),
        "arguments": Kind("words.txt", [line.encode() for line in ARGUMENTS], words, None),
    }
