"""`scaling predict`: step time, memory and collectives on a cluster that need not exist."""

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.cli.output_paths import check_outputs
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.reading import without_repeats
from scaling.profiles.io import LINKS
from scaling.profiles.profile import Profile
from scaling.recipes import file_of, resolve
from scaling.run import Run, read_run
from scaling.simulate.prediction import Prediction, prediction_dict
from scaling.simulate.resolve import Target, check_compilable, cluster_doubts, profile_for, target
from scaling.simulate.summary import summarize
from scaling.simulate.what_if import changed, check_changes

if TYPE_CHECKING:
    from scaling.simulate.step import Priced


@dataclass(frozen=True)
class PredictArguments:
    """What the user typed after `scaling predict`."""

    run: str
    cluster: str | None = None
    nodes: int | None = None
    mesh: str | None = None
    device_order: str | None = None
    overrides: Sequence[str] = ()
    source: str = "compiled"
    calibration: Path | None = None
    explain: bool = False
    what_if: Sequence[str] = ()
    trace: Path | None = None
    dump_hlo: Path | None = None
    causal_flops: bool = False
    json: bool = False


def predict_command(given: PredictArguments) -> int:
    """Predict what was asked for; returns the exit code."""
    _check(given)
    if "jax" not in sys.modules:  # nothing runs on a device here, and a GPU stays free for others
        os.environ["JAX_PLATFORMS"] = "cpu"
    if given.run.endswith(".jsonl"):
        return _lines(Path(given.run), given)
    run = resolve(given.run)
    check_outputs({"--trace": given.trace, "--dump-hlo": given.dump_hlo}, _inputs(run, given))
    where, priced, prediction = _predicted(run, given)
    if given.trace is not None:
        _write_trace(given.trace, priced)
    if given.json:
        print(json.dumps(prediction_dict(prediction), allow_nan=False))
    else:
        from scaling.report.prediction import page

        print(page(prediction, _words(where, given), where.run))
    if given.explain:
        from scaling.compare.audit import audit
        from scaling.report.explain import explanation

        text = explanation(priced, audit(priced, where.run, where.shape))
        print("\n" + text, file=sys.stderr if given.json else sys.stdout)
    return 0


def _check(given: PredictArguments) -> None:
    """What is wrong whatever the run is."""
    if given.source != "compiled":
        raise InputError(
            f"--source {given.source}: there is no closed-form program yet; use --source compiled, "
            "which compiles the trainer's own step (for NVIDIA GPUs of compute capability 7.0 or "
            "newer, and for host)"
        )
    check_changes(given.what_if)
    for option, path in (("--trace", given.trace), ("--dump-hlo", given.dump_hlo)):
        if path is not None and given.run.endswith(".jsonl"):
            raise InputError(f"{option} writes one file, but {given.run} holds many runs")


def _inputs(run: Run, given: PredictArguments) -> list[Path]:
    """The files that are read."""
    stated = run.cluster.file if run.cluster else None
    clusters = [Path(name) for name in (given.cluster, stated) if name and name.endswith(".toml")]
    named = (file_of(given.run), given.calibration)
    return [*clusters, *(path for path in named if path is not None)]


def _lines(path: Path, given: PredictArguments) -> int:
    """One JSON document per line of a file of runs, also for those that cannot be priced."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file: {error}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            document = _of_line(line, f"{path}, line {number}", given)
            print(json.dumps(document, allow_nan=False), flush=True)
    return 0


def _of_line(line: str, where: str, given: PredictArguments) -> dict[str, Any]:
    name = ""
    try:
        data = _json(line, where)
        if isinstance(data, dict) and isinstance(data.get("name"), str):
            name = data["name"]
        return prediction_dict(_predicted(read_run(data, where), given)[2])
    except InputError as error:
        return {"name": name, "error": str(error)}
    except Exception as error:  # a mistake of ours costs one line, not those after it
        traceback.print_exc()
        return {"name": name, "error": f"{where}: {type(error).__name__}: {error}"}


def _json(line: str, where: str) -> Any:
    try:
        return json.loads(line, object_pairs_hook=without_repeats)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {error}") from None


def _predicted(run: Run, given: PredictArguments) -> tuple[Target, "Priced", Prediction]:
    """Compile (or find) the program, price it, sum it up."""
    from scaling.cli.calibrate import calibrate_first
    from scaling.compare.audit import audit, noticeable
    from scaling.simulate.step import price

    where = target(run, given.cluster, given.nodes, given.mesh, given.device_order, given.overrides)
    check_compilable(where)
    calibrate_first(where.cluster, given.calibration)
    profile, doubts = profile_for(where.cluster, given.calibration)
    cluster, changed_profile = changed(where.cluster, profile, given.what_if)
    program = _program(where, given)
    priced = price(program, cluster, changed_profile, record=given.trace is not None)
    asked = [
        *cluster_doubts(where),
        *_without_effect(priced, where.cluster, profile, given.what_if),
    ]
    doubts = [*asked, *doubts, *map(str, noticeable(audit(priced, where.run, where.shape), priced))]
    return where, priced, summarize(priced, where.run, given.causal_flops, doubts)


def _without_effect(
    priced: "Priced", cluster: Cluster, profile: Profile, changes: Sequence[str]
) -> Iterator[str]:
    """A warning for each change of links that the step does not use."""
    from scaling.simulate.step import price

    for i, text in enumerate(changes):
        if text.split()[0] in LINKS:
            others = [*changes[:i], *changes[i + 1 :]]
            without = price(priced.program, *changed(cluster, profile, others))
            if without.timeline.by_name == priced.timeline.by_name:
                yield f"--what-if {text!r} changed nothing: such links hold up no collective"


def _program(where: Target, given: PredictArguments) -> Any:
    from scaling.train.program import program_of_run

    with _warnings_on_stderr():
        program, text = program_of_run(where.run, where.shape, where.cluster, given.explain)
    path = given.dump_hlo
    if path is not None:
        _written(path, lambda: path.write_text(text, encoding="utf-8"))
    return program


def _words(where: Target, given: PredictArguments) -> str:
    return ", ".join([where.words, *(f"what if {text}" for text in given.what_if)])


def _write_trace(path: Path, priced: "Priced") -> None:
    from scaling.report.trace import trace_events, write_trace

    events = trace_events(priced, title=f"predicted: {priced.program.name}")
    _written(path, lambda: write_trace(events, path))
    print(f"trace: {path} (open it at https://ui.perfetto.dev)", file=sys.stderr)


def _written(path: Path, write: Callable[[], Any]) -> None:
    try:
        write()
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    """One line each, without the source line that Python adds."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
