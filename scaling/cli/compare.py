"""`scaling compare`: a finished run against its prediction, or one prediction against another."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import scaling as sc
from scaling.cli.options import Command, File, OtherPrediction, RunFolder, RunFolders, Switch
from scaling.meshes.errors import InputError


@dataclass(frozen=True)
class CompareCommand(Command):
    """Compare a finished run with its prediction: step time, terms, collectives, memory.

    Example: scaling compare runs/demo. Or two predictions: scaling compare before.json after.json
    """

    run_dir: RunFolder
    """Folder of a run; with a recorded profile, also per term and collective."""
    other: OtherPrediction = None
    """Compare two predictions instead: each a file of scaling predict --json, or a run folder."""
    trace: File = None
    """Write predicted and measured timelines as two processes of one Perfetto file."""
    plot: File = None
    """Write a picture of predicted over measured times: step, collectives, kernels (.png, .svg)."""
    also: RunFolders = ()
    """More run folders for the picture of --plot."""
    json: Switch = False
    """Print one JSON document."""

    def execute(self) -> int:
        """Print the comparison; write plots, page and trace."""
        from scaling.api.compare import compare_folder, read_run_folder

        if self.also and self.plot is None:
            raise InputError("--also adds runs to a picture: add --plot FILE")
        if self.other is not None:
            return self._print_difference(self.other)
        self._check_outputs()
        files = read_run_folder(self.run_dir)
        lacking = f"{self.run_dir} has no {files.missing}; train the run again"
        if self.trace is not None and files.missing:
            raise InputError(f"--trace: {lacking}")
        result = compare_folder(self.run_dir, files)
        page = result.write_page()
        if self.plot is not None:
            sc.plot_comparisons([result, *map(sc.compare, self.also)], self.plot)
        if self.trace is not None:
            result.trace(self.trace)
            print(f"trace: {self.trace} (open it at https://ui.perfetto.dev)", file=sys.stderr)
        incomplete = bool(files.recording and files.missing)
        if self.json:
            print(json.dumps(result.to_dict(), allow_nan=False))
        else:
            print(f"{result}\npage: {page}")
            if not result.events and not incomplete:
                print("next: train with --record-profile 10:12 for terms and collectives too")
        if incomplete:
            print(f"warning: terms and collectives are left out: {lacking}", file=sys.stderr)
        return 0

    def _print_difference(self, other: Path) -> int:
        """Print what changed from one prediction to the other."""
        for option, path in {"--trace": self.trace, "--plot": self.plot}.items():
            if path is not None:
                raise InputError(
                    f"{option} is for a finished run: give one run folder, or leave it out"
                )
        found = sc.compare(self.run_dir, other)
        print(json.dumps(found.to_dict(), allow_nan=False) if self.json else found)
        return 0

    def _check_outputs(self) -> None:
        """Refuse a trace that would overwrite the run's files."""
        from scaling.api.compare import PAGE, SUFFIXES
        from scaling.api.output_paths import check_outputs
        from scaling.comparing.folder import KEPT
        from scaling.pictures.plots import check_picture

        page = self.run_dir / PAGE
        inputs = [self.run_dir / name for name in KEPT]
        inputs += [page.with_suffix(suffix) for suffix in SUFFIXES]
        check_outputs({"--trace": self.trace, "--plot": self.plot}, inputs)
        check_picture("--plot", self.plot)
