"""Verbs of predictions: make one, measure this machine, hold a run against its prediction."""

from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from scaling.cli.verbs_about import about


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
        mesh: axis sizes; replaces the run's mesh. Without either, all devices are fsdp.
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
    from scaling.cli.predict import PredictArguments, predict_command

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
    from scaling.cli.calibrate import calibrate_command

    return calibrate_command(out, quick, devices)


def compare(run_dir: Positional[Path], trace: Path | None = None, json: bool = False) -> int:
    """Hold a finished run against its prediction: step time, terms, collectives, memory.

    Example: scaling compare runs/demo

    Args:
        run_dir: folder of a run; with a recorded profile, also per term and collective.
        trace: write predicted and measured timelines as two processes of one Perfetto file.
        json: print one JSON document.
    """
    from scaling.cli.compare import compare_command

    with about(str(run_dir)):
        return compare_command(run_dir, trace, json)
