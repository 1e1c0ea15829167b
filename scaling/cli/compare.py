"""`scaling compare`: a finished run against its prediction."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scaling.cli.output_paths import check_outputs
from scaling.compare.folder import KEPT, PREDICTED, RunFolder, read_folder
from scaling.meshes.errors import InputError
from scaling.simulate.resolve import found_again

if TYPE_CHECKING:
    from scaling.compare.compare import Comparison
    from scaling.compare.recorded import RecordedEvent
    from scaling.compare.terms import Recording
    from scaling.meshes.cluster import Cluster
    from scaling.simulate.step import Priced

PAGE, WRITTEN = "comparison", (".html", ".svg", ".png")  # what is written beside the run's files


@dataclass(frozen=True)
class Compared:
    """A comparison with what it was made from."""

    comparison: "Comparison"
    priced: "Priced | None"  # with its events; None where the folder has no program
    events: "list[RecordedEvent]"  # of the profile, all devices


def compare_command(folder: Path, trace: Path | None, wants_json: bool) -> int:
    """Print the comparison and write plot, page and trace; returns the exit code."""
    from scaling.compare.compare import comparison_dict
    from scaling.report.comparison import table
    from scaling.report.comparison_page import write_page

    page = folder / PAGE
    inputs = [folder / name for name in KEPT]
    check_outputs({"--trace": trace}, [*inputs, *(page.with_suffix(end) for end in WRITTEN)])
    read = read_folder(folder)
    if trace is not None and read.missing:
        raise InputError(f"--trace: {folder} has no {read.missing}; train the run again")
    found = compared(read)
    try:
        page = write_page(found.comparison, page)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    if trace is not None:
        _write_trace(trace, found)
    if wants_json:
        print(json.dumps(comparison_dict(found.comparison), allow_nan=False))
    else:
        print(table(found.comparison))
        print(f"page: {page}")
        if not found.events and not (read.recording and read.missing):
            print("next: train with --record-profile 10:12 to compare terms and collectives too")
    if read.recording and read.missing:
        words = f"terms and collectives are left out: {folder} has no {read.missing}"
        print(f"warning: {words}; train the run again", file=sys.stderr)
    return 0


def compared(found: RunFolder) -> Compared:
    """The comparison of a run folder.

    Raises:
        InputError: the files are of another version, or the profile is of another program.
    """
    from scaling.compare.compare import compare

    if found.missing:
        return Compared(compare(found.prediction, found.measured), None, [])
    priced = _priced(found)
    events, recording = _recorded(found)
    seconds = {name: float(time) for name, time in priced.timeline.by_name.items()}
    comparison = compare(found.prediction, found.measured, found.program, seconds, recording)
    return Compared(comparison, priced, events)


def _priced(found: RunFolder) -> "Priced":
    """The program of the folder, priced again with the profile of the folder."""
    from scaling.simulate.step import price

    assert found.program is not None and found.profile is not None
    return price(found.program, _cluster(found), found.profile, record=True)


def _cluster(found: RunFolder) -> "Cluster":
    """The cluster that was priced; the run was measured on such a machine."""
    stated, machine = found.prediction.cluster, found.measured.machine
    try:
        cluster = found_again(stated.name, stated.nodes, stated.gpus_per_node, found.run)
    except InputError as error:
        raise InputError(f"{PREDICTED}: cluster: {error}; train the run again") from None
    kind = "cpu" if cluster.virtual_devices else cluster.accelerator.title
    if f" x {kind}, " not in machine:
        raise InputError(
            f"{PREDICTED}: cluster: {stated.name} has {kind}, but the run was measured on "
            f"{machine}; train the run again"
        )
    return cluster


def _recorded(found: RunFolder) -> "tuple[list[RecordedEvent], Recording | None]":
    """Events of the recorded steps, and their sums; none where nothing was recorded."""
    from scaling.compare.recorded import recorded_events
    from scaling.compare.terms import read_recording

    steps = found.measured.recorded_steps
    if found.recording is None or steps is None or found.program is None:
        return [], None
    events = recorded_events(found.recording)
    return events, read_recording(events, found.program, steps[1] - steps[0] + 1)


def _write_trace(path: Path, found: Compared) -> None:
    from scaling.report.trace import measured_events, trace_events, write_trace

    priced = found.priced
    assert priced is not None  # the folder has all that it takes
    both = trace_events(priced) + measured_events(found.events, priced.program, process=2)
    try:
        write_trace(both, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    print(f"trace: {path} (open it at https://ui.perfetto.dev)", file=sys.stderr)
