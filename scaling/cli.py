"""The command line: verbs only, no logic. Each verb imports what it needs when it runs.

Exit codes: 0 fine; 2 bad input, one message on stderr (with --json also {"name", "error"} on
stdout); 130 stopped by Ctrl-C before there was anything to save; 1 anything else, a stop on NaN
included.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal, NoReturn

import tyro
from tyro.conf import Positional

from meshes.errors import InputError, nearest
from scaling.train.launch import avoid_absent_gpus


def train(
    run: Positional[str],
    mesh: str | None = None,
    steps: int | None = None,
    run_dir: Path | None = None,
    resume: bool = False,
    devices: int | None = None,
    record_profile: str | None = None,
    restarts: int = 0,
    tensorboard: bool = False,
    wandb: bool = False,
) -> int:
    """Train a run.

    Example: scaling train demo --mesh data=2,fsdp=2,tensor=2 --devices 8

    Args:
        run: recipe name, file.py:function, or run.json.
        mesh: axis sizes such as data=2,fsdp=4; replaces the run's mesh. Without one, all devices
            are fsdp.
        steps: train to this step instead of the run's.
        run_dir: where everything is written (default: runs/NAME).
        resume: continue from the newest checkpoint in the run folder.
        devices: number of fake host devices, where no accelerator is present.
        record_profile: FROM:TO, steps to record with jax.profiler.
        restarts: start again from the last checkpoint after a crash, up to this many times.
        tensorboard: also write TensorBoard events.
        wandb: also log to Weights & Biases.
    """
    from scaling.commands.train import TrainArguments, train_command

    sinks = tuple(n for n, on in (("tensorboard", tensorboard), ("wandb", wandb)) if on)
    given = TrainArguments(
        run, mesh, steps, run_dir, resume, devices, record_profile, restarts, sinks
    )
    return train_command(given)


def sample(
    run_dir: Positional[Path],
    prompt: str,
    tokens: int = 200,
    temperature: float = 0.8,
    seed: int = 0,
) -> int:
    """Print text from a checkpoint.

    Example: scaling sample runs/demo --prompt "def "

    Args:
        run_dir: folder of a byte-level run.
        prompt: how the text begins.
        tokens: bytes to add.
        temperature: 0 is greedy; higher is more random.
        seed: of the sampling.
    """
    from scaling.sample import generate, load_model

    run, model = load_model(run_dir)
    print(generate(model, prompt, run.batch.seq_len, tokens, temperature, seed))
    return 0


def sharding(
    run: Positional[str], mesh: str | None = None, devices: int | None = None, json: bool = False
) -> int:
    """Show every parameter's shape, spec and bytes per device on a mesh; needs no devices.

    Example: scaling sharding llama3-70b --mesh fsdp=64,tensor=8

    Args:
        run: recipe name, file.py:function, or run.json.
        mesh: axis sizes; without them, `devices` as fsdp.
        devices: number of devices; must be the mesh's, where one is given (default: 1).
        json: print one JSON document instead of a table.
    """
    from scaling.commands.sharding import sharding_command

    with about(run):
        return sharding_command(run, mesh, devices, json)


def cluster(
    action: Positional[Literal["list", "show", "check"]],
    target: Positional[str | None] = None,
    nodes: int = 1,
    override: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    topology: Path | None = None,
    accelerator: str | None = None,
    json: bool = False,
) -> int:
    """List the catalogue of clusters, show one as a tree with its sources, or check a file.

    Example: scaling cluster show dgx-h100

    Args:
        action: list, show NAME, or check FILE.toml.
        target: catalogue name or TOML file.
        nodes: number of hosts to show.
        override: key=value on top of the catalogue, repeatable.
        topology: output of nvidia-smi topo -m; check writes the machine as a cluster file.
        accelerator: the GPUs of that machine, a catalogue name or TOML file.
        json: print one JSON document.
    """
    from scaling.commands.cluster import cluster_command

    with about(target or action):
        return cluster_command(action, target, nodes, override, json, topology, accelerator)


def predict(
    run: Positional[str],
    cluster: str | None = None,
    nodes: int | None = None,
    mesh: str | None = None,
    device_order: str | None = None,
    override: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    source: Literal["analytic", "compiled"] = "compiled",
    calibration: Path | None = None,
    explain: bool = False,
    what_if: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    trace: Path | None = None,
    dump_hlo: Path | None = None,
    causal_flops: bool = False,
    json: bool = False,
) -> int:
    """Predict step time, memory and collectives of a run on a cluster that need not exist.

    Example: scaling predict llama3-70b --mesh fsdp=64,tensor=8 --cluster dgx-h100 --nodes 64

    Args:
        run: recipe name, file.py:function, run.json, or a .jsonl with one run per line.
        cluster: catalogue name or TOML file (default: the run's, else host, this machine).
        nodes: number of hosts (default: the run's, else 1).
        mesh: axis sizes; without them, all devices as fsdp.
        device_order: axes joined by commas, outermost first; the last has neighbouring devices.
        override: key=value on top of the cluster's figures, repeatable.
        source: where the program comes from; analytic is not there yet.
        calibration: file of scaling calibrate to price with.
        explain: also show the dearest operations beside XLA's own estimates, and what every
            figure rests on (with --json on stderr).
        what_if: multiply a figure, such as "network x2", repeatable: nvlink, pcie, network,
            latency, peak, memory_bandwidth, memory, launch.
        trace: write the timeline for Perfetto.
        dump_hlo: write the compiled program's text.
        causal_flops: count half of attention in the model FLOPs.
        json: print one JSON document (one per line for a .jsonl).
    """
    from scaling.commands.predict import PredictArguments, predict_command

    given = PredictArguments(
        run, cluster, nodes, mesh, device_order, override, source, calibration, explain, what_if,
        trace, dump_hlo, causal_flops, json,
    )  # fmt: skip
    with about(run):
        return predict_command(given)


def calibrate(out: Path | None = None, quick: bool = False, devices: int | None = None) -> int:
    """Measure this machine: matmul, attention, memory, each collective on each axis.

    Example: scaling calibrate --quick --devices 8

    Args:
        out: file to write (default: in ~/.cache/scaling/calibrations).
        quick: fewer sizes, under a minute.
        devices: number of fake host devices, where no accelerator is present (default: 8).
    """
    from scaling.commands.calibrate import calibrate_command

    return calibrate_command(out, quick, devices)


def compare(run_dir: Positional[Path], trace: Path | None = None, json: bool = False) -> int:
    """Hold a finished run against its prediction: step time, terms, collectives, memory.

    Example: scaling compare runs/demo

    Args:
        run_dir: folder of a run; with a recorded profile, also per term and collective.
        trace: write predicted and measured timelines as two processes of one Perfetto file.
        json: print one JSON document.
    """
    from scaling.commands.compare import compare_command

    with about(str(run_dir)):
        return compare_command(run_dir, trace, json)


def collective(
    kind: Positional[str],
    cluster: str,
    bytes: str | None = None,
    nodes: int = 1,
    mesh: str | None = None,
    axis: str | None = None,
    device_order: str | None = None,
    algorithm: str = "auto",
    dtype: str | None = None,
    sweep: str | None = None,
    override: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    calibration: Path | None = None,
    ideal: bool = False,
    software: Literal["any", "jax"] = "any",
    plot: Path | None = None,
    json: bool = False,
    choice: Literal["fastest", "nccl"] = "fastest",
    nccl: str | None = None,
) -> int:
    """Time of one collective on a cluster, as nccl-tests would print it.

    Example: scaling collective all-reduce --bytes 1GiB --cluster dgx-h100 --nodes 4

    Args:
        kind: all-reduce, all-gather, reduce-scatter, all-to-all, permute or broadcast.
        cluster: catalogue name or TOML file.
        bytes: size as nccl-tests counts it, or several: 65536,1MiB,1GiB (default: 1GiB).
        nodes: number of hosts.
        mesh: axis sizes on the first devices; without it, one group of all devices.
        axis: axes of the mesh that the collective runs over, joined by commas (default: all).
        device_order: axes joined by commas, outermost first.
        algorithm: auto, ring, tree, nvls, nvls-tree, sharp, hierarchical, pairwise or pat.
        dtype: of the numbers; sizes are in bytes, so that it only stands in the heading.
        sweep: first:last, every power of two between: 1KiB:8GiB.
        override: key=value on top of the cluster's figures, repeatable.
        calibration: file of scaling calibrate to price with.
        ideal: no latency, every link at its full bandwidth: the textbook's rule.
        software: any, or jax: as XLA's own tables have it, where it has one.
        plot: file for bandwidth against size, with the bound drawn in (.svg or .png).
        json: print one JSON document (a list for several sizes).
        choice: which algorithm and protocol: the fastest, or what NCCL's own table ranks first.
        nccl: version of NCCL whose table is asked, such as 2.27.7 (default: the newest known).
    """
    from scaling.commands.collective import CollectiveArguments, collective_command

    given = CollectiveArguments(
        kind, cluster, bytes, nodes, mesh, axis, device_order, algorithm, dtype, sweep, override,
        calibration, ideal, software, plot, json, choice, nccl,
    )  # fmt: skip
    with about(kind):
        return collective_command(given)


def testbed(
    action: Positional[Literal["up", "run", "down", "status"]],
    command: Positional[tuple[str, ...]] = (),
    name: str = "default",
    hosts: int | None = None,
    devices: int | None = None,
    bandwidth: str | None = None,
    latency: str | None = None,
) -> int:
    """Make a real cluster inside this Linux machine, run a command on all its hosts, remove it.

    Hosts are network namespaces, joined by links of a known rate; needs root and iproute2.

    Example: scaling testbed up --hosts 2 --devices 2 --bandwidth 1Gbit
    then: scaling testbed run -- scaling train tiny --mesh data=2,fsdp=2
    and at last: scaling testbed down

    Args:
        action: up makes it, run starts a command in every host, down removes it, status lists.
        command: for run, after --: what to start, once in every host.
        name: of the testbed; there may be several.
        hosts: for up: number of hosts (default: 2).
        devices: for up: fake CPU devices of each host (default: 2).
        bandwidth: for up: of each host's link, in each direction (default: 1Gbit).
        latency: for up: added from host to host, such as 1ms; needs the kernel's netem.
    """
    from scaling.commands.testbed import BedArguments, testbed_command

    given = BedArguments(command, name, hosts, devices, bandwidth, latency)
    with about(name):
        return testbed_command(action, given)


INTERRUPTED = 128 + signal.SIGINT  # as shells say that a signal ended a command: 130
STOPPED = "stopped by SIGINT"
VERBS: dict[str, Callable[..., int]] = {
    "train": train,
    "predict": predict,
    "collective": collective,
    "compare": compare,
    "calibrate": calibrate,
    "sample": sample,
    "sharding": sharding,
    "cluster": cluster,
    "testbed": testbed,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    avoid_absent_gpus()
    try:
        _check_verb(arguments)
        code = tyro.extras.subcommand_cli_from_dict(
            VERBS, prog="scaling", description=DESCRIPTION, args=arguments
        )
        sys.stdout.flush()  # here, where a reader that has gone is no error
        return code
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        if "--json" in arguments:
            print(json.dumps({"name": getattr(error, "about", ""), "error": str(error)}))
        return 2
    except SystemExit as stop:  # by tyro, which has said on stderr what is wrong
        if stop.code and "--json" in arguments:
            print(json.dumps({"name": "", "error": "the arguments are not understood: see stderr"}))
        raise
    except (
        KeyboardInterrupt
    ):  # Ctrl-C where nothing has to be saved: the first step is still to come
        print(STOPPED, file=sys.stderr, flush=True)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def command() -> NoReturn:
    """The process of one verb: ends with its exit code.

    Ctrl-C ends it at once, except where the trainer has something to save. An exception instead
    would pass through compilers and garbage collectors that lose it, or crash.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, _interrupted)
    code = main()
    if code == INTERRUPTED:
        _end()
    sys.exit(code)


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    os.write(sys.stderr.fileno(), f"{STOPPED}\n".encode())
    _end()


def _end() -> NoReturn:
    """Without taking jax apart, which would crash while it compiles."""
    os._exit(INTERRUPTED)


def _check_verb(arguments: list[str]) -> None:
    if arguments and not arguments[0].startswith("-") and arguments[0] not in VERBS:
        raise InputError(f"scaling has no command {arguments[0]!r}; {nearest(arguments[0], VERBS)}")


@contextmanager
def about(name: str) -> Iterator[None]:
    """Notes on errors raised inside which run or cluster they are about, for --json."""
    try:
        yield
    except InputError as error:
        error.about = name  # type: ignore[attr-defined]
        raise


DESCRIPTION = "One mesh definition that trains a sharded JAX transformer and prices the same step."

if __name__ == "__main__":
    command()
