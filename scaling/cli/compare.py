"""`scaling compare`: the page, pictures and trace of a run beside its prediction."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import scaling as sc
from scaling.cli.show import show
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
    """
    from scaling.api.compare import PAGE, SUFFIXES, compare_folder, read_run_folder
    from scaling.api.output_paths import check_outputs
    from scaling.comparing.folder import KEPT

    if also and plot is None:
        raise InputError("--also adds runs to a picture: add --plot FILE")
    outputs = {"--trace": trace, "--plot": plot}
    if call.keywords.get("other") is not None:
        for option, path in outputs.items():
            if path is not None:
                raise InputError(
                    f"{option} is for a finished run: give one run folder, or leave it out"
                )
        return show(call(), json)
    folder = Path(call.keywords["run_dir"])
    pages = [(folder / PAGE).with_suffix(suffix) for suffix in SUFFIXES]
    check_outputs(outputs, [*(folder / name for name in KEPT), *pages])
    files = read_run_folder(folder)
    lacking = f"{folder} has no {files.missing}; train the run again"
    if trace is not None and files.missing:
        raise InputError(f"--trace: {lacking}")
    result = compare_folder(folder, files)
    page = result.write_page()
    if plot is not None:
        sc.plot_comparisons([result, *map(sc.compare, also)], plot)
    if trace is not None:
        from scaling.report.trace import trace_line

        result.trace(trace)
        print(trace_line(trace), file=sys.stderr)
    incomplete = bool(files.recording and files.missing)
    show(result, json)
    if not json:
        print(f"page: {page}")
        if not result.events and not incomplete:
            print("next: train with --record-profile 10:12 for terms and collectives too")
    if incomplete:
        print(f"warning: terms and collectives are left out: {lacking}", file=sys.stderr)
    return 0
