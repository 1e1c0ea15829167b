"""`scaling predict`: what it writes and prints, of one run, of many, or on several clusters."""

import json as json_text
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import scaling as sc
from scaling.api.predict import predict_each
from scaling.api.runs import with_batch
from scaling.cli.show import show, show_prediction
from scaling.meshes.errors import InputError
from scaling.meshes.reading import parse_json, read_text
from scaling.run import Run, read_run

# Options that --scale, which prices several numbers of nodes, does not take.
NOT_OF_CURVES = ("nodes", "explain", "what_if", "trace", "plot_memory", "dump_hlo")
MOST_SECONDS = 60.0  # of one compile; advice costs two more


def predict(
    call: "partial[Any]",
    *,
    explain: bool = False,
    scale: str | None = None,
    trace: Path | None = None,
    plot: tuple[str, ...] = (),
    plot_memory: Path | None = None,
    json: bool = False,
    verbose: bool = False,
) -> int:
    """Predict one run, each line of a .jsonl, or one run on several numbers of nodes.

    Args:
        run: recipe name, file.py:function, run.json, its folder, a Hugging Face config.json, or a
            .jsonl with one run per line.
        explain: also show each term's formula with its numbers, the longest operations beside XLA's
            own estimates, what fills the memory, and the evidence of every figure (with --json on
            stderr).
        scale: numbers of nodes, such as 1,2,4,8: the run on each, with its batch as it is (strong
            scaling) and with one that grows (weak). With --mesh, its data axis grows.
        trace: write the timeline for Perfetto, or for XProf into a folder NAME.xprof.
        plot: write a picture (.png, .svg): time=FILE, the step's terms; memory=FILE, over the step;
            roofline=FILE with every kernel; timeline=FILE with a row for each pipeline stage;
            mesh=FILE, devices coloured by their place along each axis; with --scale: scaling=FILE.
        plot_memory: write a picture of the memory over the step: --plot memory=FILE.
        json: print one JSON document (one per line for a .jsonl).
    """
    from scaling.api.output_paths import check_outputs, picture_paths
    from scaling.api.result import KINDS
    from scaling.run.recipes import file_of

    asked = call.keywords
    pictures = picture_paths(plot, KINDS if scale is None else ("scaling",))
    outputs = {"--trace": trace, "--dump-hlo": asked.get("dump_hlo"), "--plot-memory": plot_memory}
    outputs |= {f"--plot {kind}": path for kind, path in pictures.items()}
    if plot_memory is not None:
        if "memory" in pictures:
            raise InputError("--plot memory and --plot-memory name the same picture; give one")
        pictures["memory"] = plot_memory
    call = partial(call, estimates=explain)
    if asked["run"].endswith(".jsonl"):
        if scale is not None:
            raise InputError(f"--scale is for one run, but {asked['run']} holds many")
        return _print_lines(call, outputs)
    stated = sc.load_run(asked["run"]).cluster
    clusters = [name for name in (asked.get("cluster"), stated and stated.file) if name]
    inputs = [Path(name) for name in clusters if name.endswith(".toml")]
    read = (file_of(asked["run"]), asked.get("calibration"), asked.get("measured"))
    check_outputs(outputs, [*inputs, *(path for path in read if path is not None)])
    if scale is not None:
        others = {"explain": explain, "trace": trace, "plot_memory": plot_memory}
        return show(_curves({**asked, **others}, scale), json, pictures.get("scaling"))
    prediction = call()
    is_fast = prediction.pricing.compile_seconds < MOST_SECONDS
    return show_prediction(prediction, json, explain, trace, pictures, advice=is_fast)


def _curves(asked: Mapping[str, Any], nodes: str) -> Any:
    if given := [name for name in NOT_OF_CURVES if asked.get(name)]:
        option = f"--{given[0].replace('_', '-')}"
        raise InputError(f"{option} is for one number of nodes; leave it or --scale out")
    stated = sc.load_run(asked["run"]).cluster
    cluster = asked.get("cluster") or (stated.name or stated.file if stated else None)
    if cluster is None:
        raise InputError("--scale needs --cluster, such as dgx-h100")
    others = {k: v for k, v in asked.items() if v and k not in (*NOT_OF_CURVES, "cluster")}
    others["set"] = with_batch(
        others.get("set"), others.pop("batch", None), others.pop("seq_len", None)
    )
    return sc.scaling_curves(cluster=cluster, nodes=nodes, **others)


def _print_lines(call: "partial[Any]", outputs: Mapping[str, Path | None]) -> int:
    """Print one JSON document per line of a file of runs, also for those that fail."""
    file = call.keywords["run"]
    for option, path in outputs.items():
        if path is not None:
            raise InputError(f"{option} writes one file, but {file} holds many runs")
    lines = enumerate(read_text(Path(file)).split("\n"), 1)
    runs = [_read(line, f"{file}, line {number}") for number, line in lines if line.strip()]
    options = {name: value for name, value in call.keywords.items() if name != "run"}
    found = predict_each((run for *_, run in runs if isinstance(run, Run)), **options)
    for where, name, run in runs:
        result = next(found) if isinstance(run, Run) else run
        if isinstance(result, Exception):
            said = str(result)
            if not isinstance(result, InputError):  # a fault of ours costs one line
                traceback.print_exception(result)
                said = f"{where}: {type(result).__name__}: {said}"
            document = {"name": name, "error": said}
        else:
            document = result.to_dict()
        print(json_text.dumps(document, allow_nan=False), flush=True)
    return 0


def _read(line: str, where: str) -> tuple[str, str, Run | Exception]:
    """Return where the run stands, its name and the run, or why there is none."""
    data = None
    try:
        data = parse_json(line, where)
        run: Run | Exception = read_run(data, where)
    except Exception as error:
        run = error
    name = data.get("name") if isinstance(data, dict) else None
    return where, name if isinstance(name, str) else "", run
