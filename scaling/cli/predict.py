"""`scaling predict`: step time, memory and collectives on a cluster that need not exist."""

import json
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import scaling as sc
from scaling.cli.options import Changes, File, KeyValues, Number, Pictures, RunCommand, Switch, Text
from scaling.meshes.errors import InputError
from scaling.meshes.reading import parse_json, read_text

# Options that --scale, which prices several numbers of nodes, does not take.
NOT_OF_CURVES = ("nodes", "explain", "what_if", "trace", "plot_memory", "dump_hlo")
MOST_SECONDS = 60.0  # of one compile; advice costs two more


@dataclass(frozen=True)
class PredictCommand(RunCommand):
    """Predict step time, memory and collectives of a run on a cluster that need not exist.

    Example: scaling predict llama3-70b --mesh fsdp=64,tensor=8 --cluster dgx-h100 --nodes 64
    """

    cluster: Text = None
    """Catalogue name or TOML file (default: the run's, else host, this machine)."""
    nodes: Number = None
    """Number of hosts (default: the run's, else 1)."""
    scale: Text = None
    """Numbers of nodes, such as 1,2,4,8: the run on each, with its batch as it is (strong scaling)
    and with one that grows (weak). With --mesh, its data axis grows."""
    override: KeyValues = ()
    """A figure of the cluster, such as node_network_bandwidth=3200Gb/s (all NICs of a node)."""
    source: Literal["auto", "analytic", "compiled", "stored"] = "auto"
    """compiled: the trainer's own step; analytic: a closed form, also of other software; auto:
    compiled where the trainer can run it and the target can be compiled for; stored: a compiled
    program that comes with the package, priced without JAX."""
    calibration: File = None
    """File of scaling calibrate to price with."""
    explain: Switch = False
    """Also show each term's formula with its numbers, the longest operations beside XLA's own
    estimates, what fills the memory, and the evidence of every figure (with --json on stderr)."""
    what_if: Changes = ()
    """Multiply a figure, such as "network x2": nvlink, pcie, network, oversubscription (of leaf
    switches), latency, peak, memory_bandwidth, memory, launch; "network xinf" and "latency x0" are
    free."""
    trace: File = None
    """Write the timeline for Perfetto."""
    plot: Pictures = ()
    """Write a picture (.png, .svg): time=FILE, the step's terms; memory=FILE, over the step;
    roofline=FILE with every kernel; timeline=FILE with a row for each pipeline stage; mesh=FILE,
    devices coloured by their place along each axis; with --scale: scaling=FILE."""
    plot_memory: File = None
    """Write a picture of the memory over the step: --plot memory=FILE."""
    dump_hlo: File = None
    """Write the compiled program's text."""
    causal_flops: Switch = False
    """Count half of attention in the model FLOPs."""
    json: Switch = False
    """Print one JSON document (one per line for a .jsonl)."""

    verbose: Switch = False
    """Show what the compiler writes to stderr, instead of keeping it in a log."""

    def execute(self) -> int:
        """Predict one run, or each line of a .jsonl."""
        if self.run.endswith(".jsonl"):
            return self._print_lines()
        self._check_outputs()
        if self.scale is not None:
            return self._print_curves(self.scale)
        result = self._predict(self.run)
        if self.trace is not None:
            result.trace(self.trace)
            print(f"trace: {self.trace} (open it at https://ui.perfetto.dev)", file=sys.stderr)
        for kind, path in self._pictures().items():
            result.plot(kind, path)
        print(json.dumps(result.to_dict(), allow_nan=False) if self.json else result, flush=True)
        if not self.json and result.pricing.compile_seconds < MOST_SECONDS:
            for text in result.advice():
                print(f"next: {text}")
        if self.explain:
            print(f"\n{result.explain()}", file=sys.stderr if self.json else sys.stdout)
        return 0

    def _predict(self, run: "str | sc.Run") -> Any:
        return sc.predict(
            run,
            self.cluster,
            self.nodes,
            self.mesh,
            device_order=self.device_order,
            set=self.set,
            overrides=self.override,
            source=self.source,
            calibration=self.calibration,
            what_if=self.what_if,
            causal_flops=self.causal_flops,
            estimates=self.explain,
            dump_hlo=self.dump_hlo,
        )

    def _print_curves(self, nodes: str) -> int:
        """Print the run on several numbers of nodes, and draw it."""
        refused = {name: getattr(self, name) for name in NOT_OF_CURVES}
        if given := [name for name, value in refused.items() if value]:
            option = f"--{given[0].replace('_', '-')}"
            raise InputError(f"{option} is for one number of nodes; leave it or --scale out")
        stated = sc.load_run(self.run).cluster
        cluster = self.cluster or (stated.name or stated.file if stated else None)
        if cluster is None:
            raise InputError("--scale needs --cluster, such as dgx-h100")
        curves = sc.scaling_curves(
            *(self.run, cluster, nodes, self.mesh, self.source, self.set),
            device_order=self.device_order,
            overrides=self.override,
            calibration=self.calibration,
            causal_flops=self.causal_flops,
        )
        for path in self._pictures().values():
            curves.plot(path)
        print(json.dumps(curves.to_dict(), allow_nan=False) if self.json else curves)
        return 0

    def _check_outputs(self) -> None:
        """Refuse output files that cannot be written, or that are read."""
        from scaling.api.output_paths import check_outputs
        from scaling.run.recipes import file_of

        stated = sc.load_run(self.run).cluster
        clusters = [name for name in (self.cluster, stated and stated.file) if name]
        inputs = [Path(name) for name in clusters if name.endswith(".toml")]
        inputs += [path for path in (file_of(self.run), self.calibration) if path is not None]
        check_outputs(self._outputs(), inputs)

    def _pictures(self) -> dict[str, Path]:
        """Return the pictures to write, by kind."""
        from scaling.api.plots import KINDS, picture_paths
        from scaling.pictures.plots import check_picture

        kinds = KINDS if self.scale is None else ("scaling",)
        found = picture_paths("--plot", self.plot, kinds)
        check_picture("--plot-memory", self.plot_memory)
        if self.plot_memory is not None and "memory" in found:
            raise InputError("--plot memory and --plot-memory name the same picture; give one")
        return found if self.plot_memory is None else {**found, "memory": self.plot_memory}

    def _outputs(self) -> dict[str, Path | None]:
        """Return the files to write, by option."""
        drawn = {f"--plot {kind}": path for kind, path in self._pictures().items()}
        return {"--trace": self.trace, **drawn, "--dump-hlo": self.dump_hlo}

    def _print_lines(self) -> int:
        """Print one JSON document per line of a file of runs, also for those that fail."""
        if self.scale is not None:
            raise InputError(f"--scale is for one run, but {self.run} holds many")
        for option, path in self._outputs().items():
            if path is not None:
                raise InputError(f"{option} writes one file, but {self.run} holds many runs")
        for number, line in enumerate(read_text(Path(self.run)).split("\n"), 1):
            if line.strip():
                document = self._document(line, f"{self.run}, line {number}")
                print(json.dumps(document, allow_nan=False), flush=True)
        return 0

    def _document(self, line: str, where: str) -> dict[str, Any]:
        """Return the prediction of one line, or its name and error."""
        from scaling.run import read_run

        name = ""
        try:
            data = parse_json(line, where)
            if isinstance(data, dict) and isinstance(data.get("name"), str):
                name = data["name"]
            document: dict[str, Any] = self._predict(read_run(data, where)).to_dict()
            return document
        except InputError as error:
            return {"name": name, "error": str(error)}
        except Exception as error:  # a fault of ours costs one line, not those after it
            traceback.print_exc()
            return {"name": name, "error": f"{where}: {type(error).__name__}: {error}"}
