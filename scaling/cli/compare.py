"""`scaling compare`: the page, pictures and trace of a run beside its prediction."""

import json as json_text
import sys
from functools import partial
from pathlib import Path
from typing import Any

import scaling as sc
from scaling.meshes.errors import InputError


def compare(
    call: "partial[Any]",
    *,
    trace: Path | None = None,
    plot: Path | None = None,
    also: tuple[str, ...] = (),
    json: bool = False,
) -> int:
    """Print the comparison; write plots, page and trace.

    Args:
        trace: write predicted and measured timelines as two processes of one Perfetto file.
        plot: write a picture of predicted over measured times: step, collectives, kernels (.png,
            .svg).
        also: more run folders for the picture of --plot.
        json: print one JSON document.
    """
    from scaling.api.compare import compare_folder, read_run_folder

    if also and plot is None:
        raise InputError("--also adds runs to a picture: add --plot FILE")
    if call.keywords.get("other") is not None:
        for option, path in {"--trace": trace, "--plot": plot}.items():
            if path is not None:
                raise InputError(
                    f"{option} is for a finished run: give one run folder, or leave it out"
                )
        found = call()
        print(json_text.dumps(found.to_dict(), allow_nan=False) if json else found)
        return 0
    folder = Path(call.keywords["run_dir"])
    _check_outputs(folder, trace, plot)
    files = read_run_folder(folder)
    lacking = f"{folder} has no {files.missing}; train the run again"
    if trace is not None and files.missing:
        raise InputError(f"--trace: {lacking}")
    result = compare_folder(folder, files)
    page = result.write_page()
    if plot is not None:
        sc.plot_comparisons([result, *map(sc.compare, also)], plot)
    if trace is not None:
        result.trace(trace)
        print(f"trace: {trace} (open it at https://ui.perfetto.dev)", file=sys.stderr)
    incomplete = bool(files.recording and files.missing)
    if json:
        print(json_text.dumps(result.to_dict(), allow_nan=False))
    else:
        print(f"{result}\npage: {page}")
        if not result.events and not incomplete:
            print("next: train with --record-profile 10:12 for terms and collectives too")
    if incomplete:
        print(f"warning: terms and collectives are left out: {lacking}", file=sys.stderr)
    return 0


def _check_outputs(folder: Path, trace: Path | None, plot: Path | None) -> None:
    """Refuse a trace that would overwrite the run's files."""
    from scaling.api.compare import PAGE, SUFFIXES
    from scaling.api.output_paths import check_outputs
    from scaling.comparing.folder import KEPT
    from scaling.pictures.files import check_picture

    inputs = [folder / name for name in KEPT]
    inputs += [(folder / PAGE).with_suffix(suffix) for suffix in SUFFIXES]
    check_outputs({"--trace": trace, "--plot": plot}, inputs)
    check_picture("--plot", plot)
