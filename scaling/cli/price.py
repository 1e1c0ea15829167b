"""`scaling price`: a step that is not ours, from a script or from XLA's dump."""

import json
import math
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

import scaling as sc
from scaling.cli.options import (
    Changes,
    Command,
    File,
    KeyValues,
    Number,
    Pictures,
    Real,
    Switch,
    Text,
)
from scaling.meshes.errors import InputError

if TYPE_CHECKING:
    from scaling.comparing.recorded import RecordedEvent

Script = Annotated[Positional[str], arg(metavar="[FILE.py:make]", help_behavior_hint="")]


@dataclass(frozen=True)
class PriceCommand(Command):
    """Price a step that is not ours: one that a script makes, or a program that XLA dumped.

    Example: scaling price step.py:make --cluster dgx-h100 --nodes 8 --mesh data=8,model=8. Or:
    scaling price --hlo DUMP --cluster dgx-h100 --nodes 8
    """

    step: Script = ""
    """A function that returns (step, arguments), or (step, arguments, keywords): make(mesh) gets a
    jax mesh over the cluster's devices, make() finds them in jax.devices()."""
    hlo: File = None
    """XLA's dump *after_optimizations.txt, or a folder of dumps; needs no JAX."""
    cluster: Text = None
    """Catalogue name or TOML file."""
    nodes: Number = None
    """Number of hosts (default: as many as the mesh needs)."""
    mesh: Text = None
    """Axes of any names, outermost first: data=8,model=8 (default: data over all devices; of a
    dump those of the files beside it)."""
    override: KeyValues = ()
    """A figure of the cluster, such as node_network_bandwidth=3200Gb/s (all NICs of a node)."""
    calibration: File = None
    """File of scaling calibrate to price with."""
    tokens: Real = None
    """Tokens of one step, for tokens/s."""
    model_flops: Real = None
    """FLOPs of one step on all devices, such as 6 x parameters x tokens, for MFU."""
    memory_fraction: Real = None
    """Share of a GPU's memory that XLA's pool is given (default: XLA_CLIENT_MEM_FRACTION of this
    environment, else 0.75, as in XLA)."""
    trips: KeyValues = ()
    """How often a loop runs whose trips only the run tells, such as decode.py:40=512."""
    local: KeyValues = ()
    """NAME=FLOPS of a custom kernel that talks to no other device; NAME alone: by its bytes."""
    what_if: Changes = ()
    """Multiply a figure, such as "network x2"; as for scaling predict."""
    compare: File = None
    """Hold the price beside a profile of the real run: a folder that jax.profiler.trace wrote, or
    its HOST.xplane.pb or trace in JSON."""
    steps: Number = None
    """Steps in that profile (default: counted by what runs in each)."""
    trace: File = None
    """Write the timeline for Perfetto; with --compare the measured one beside it."""
    plot: Pictures = ()
    """Write a picture (.png, .svg): time=FILE, memory=FILE, roofline=FILE, timeline=FILE or
    mesh=FILE; as for scaling predict."""
    dump_hlo: File = None
    """Write the compiled program's text."""
    explain: Switch = False
    """Also show each term's formula, the longest operations and the evidence of every figure (with
    --json on stderr)."""
    json: Switch = False
    """Print one JSON document."""
    verbose: Switch = False
    """Show what the compiler writes to stderr, instead of keeping it in a log."""

    @property
    def subject(self) -> str:
        """The script or the dump."""
        return self.step or str(self.hlo or "")

    def execute(self) -> int:
        """Price it and print the page."""
        self._check()
        recorded = self._recorded()
        result = self._from_dump() if self.hlo else self._from_script()
        beside = self._beside(result, recorded) if recorded else None
        if self.trace is not None:
            (beside or result).trace(self.trace)
            print(f"trace: {self.trace} (open it at https://ui.perfetto.dev)", file=sys.stderr)
        for kind, path in self._pictures().items():
            result.plot(kind, path)
        if self.json:
            more = {"compare": beside.to_dict()} if beside else {}
            print(json.dumps(result.to_dict() | more, allow_nan=False), flush=True)
        else:
            print(f"{result}\n\n{beside}" if beside else result, flush=True)
        if self.explain:
            print(f"\n{result.explain()}", file=sys.stderr if self.json else sys.stdout)
        return 0

    def _check(self) -> None:
        """Refuse what contradicts itself, before anything is compiled."""
        from scaling.api.output_paths import check_outputs

        if bool(self.step) == bool(self.hlo):
            what = "both a script and --hlo" if self.step else "neither a script nor --hlo"
            raise InputError(f"{what}: give FILE.py:make, or --hlo with XLA's dump")
        if self.cluster is None:
            raise InputError("for which cluster? add --cluster, such as --cluster dgx-h100")
        if self.steps is not None and self.compare is None:
            raise InputError("--steps is of a profile: add --compare PROFILE")
        if self.hlo and self.dump_hlo:
            raise InputError("--dump-hlo writes what is compiled here; --hlo has a dump already")
        if self.step and ".py:" not in self.step:
            raise InputError(f"{self.step}: write FILE.py:FUNCTION, such as step.py:make")
        outputs = {f"--plot {kind}": path for kind, path in self._pictures().items()}
        inputs = [p for p in (self.hlo, self.calibration, self.compare) if p is not None]
        inputs += [Path(self.step.rpartition(":")[0])] if self.step else []
        check_outputs({**outputs, "--trace": self.trace, "--dump-hlo": self.dump_hlo}, inputs)

    def _recorded(self) -> "list[RecordedEvent]":
        """The events of the profile, before anything is compiled; none without --compare."""
        if self.compare is None:
            return []
        from scaling.api.profile import recorded_profile

        assert self.cluster is not None  # checked above
        return recorded_profile(self.compare, self.cluster, self.steps)

    def _beside(self, result: Any, recorded: "list[RecordedEvent]") -> Any:
        """The prediction beside the profile."""
        from scaling.api.profile import compared

        return compared(result, result.pricing, recorded, self.steps)

    def _pictures(self) -> dict[str, Path]:
        """Return the pictures to write, by kind."""
        if not self.plot:
            return {}
        from scaling.api.plots import KINDS, picture_paths

        return picture_paths("--plot", self.plot, KINDS)

    def _options(self) -> dict[str, Any]:
        """What both ways take."""
        return {
            "tokens": self.tokens,
            "model_flops": self.model_flops,
            "trips": {k: _number("--trips", k, v) for k, v in _pairs("--trips", self.trips)},
            "kernels": dict(map(_kernel, self.local)),
            "overrides": self.override,
            "calibration": self.calibration,
            "what_if": self.what_if,
            "memory_fraction": self.memory_fraction,
        }

    def _from_dump(self) -> Any:
        assert self.hlo is not None and self.cluster is not None  # checked above
        return sc.predict_hlo(self.hlo, self.cluster, self.nodes, self.mesh, **self._options())

    def _from_script(self) -> Any:
        from scaling.api.inputs import axis_sizes, cluster_for
        from scaling.api.script import script_step

        assert self.cluster is not None  # checked above
        sizes = axis_sizes(self.mesh) if self.mesh else {}
        place = cluster_for(math.prod(sizes.values()), self.cluster, self.nodes, self.override)
        mesh = sizes or {"data": place.devices}
        options = {**self._options(), "overrides": None}
        name = Path(self.step.rpartition(":")[0]).stem
        mesh_of_all = lambda: sc.device_mesh(mesh, place)
        # The script prints to stderr: stdout holds our page or its JSON only.
        printed = redirect_stdout(sys.stderr)
        with sc.pretend(place), printed, script_step(self.step, mesh_of_all) as made:
            over = self.mesh if self.mesh and not made.is_on_a_mesh else None
            return sc.predict_step(
                made.step,
                *made.arguments,
                step_kwargs=made.keywords,
                cluster=place,
                mesh=mesh_of_all() if over else None,
                name=name,
                estimates=self.explain,
                dump_hlo=self.dump_hlo,
                **options,
            )


def _pairs(option: str, texts: tuple[str, ...]) -> list[tuple[str, str]]:
    """(key, value) of texts "key=value"."""
    for text in texts:
        if not all(text.rpartition("=")[::2]):
            raise InputError(f"{option} {text}: write NAME=NUMBER")
    return [text.rpartition("=")[::2] for text in texts]


def _number(option: str, key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(f"{option} {key}={value}: {value!r} is no number") from None


def _kernel(text: str) -> tuple[str, Any]:
    """The name and the work of a kernel that talks to no other device."""
    name, equals, flops = text.partition("=")
    return name, sc.Work(flops=_number("--local", name, flops)) if equals else "local"
