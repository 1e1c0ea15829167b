"""The result of a prediction, with everything that it was computed from.

    Pricing (program, cluster, profile, changes) -> price, sum up -> PredictionResult

A result keeps its Pricing, so that it can be priced again: with a figure changed (`what_if`), or
with its timeline recorded (`trace`).
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.api.inputs import as_texts
from scaling.api.pricing import Pricing, discrepancies, predicted, price_program, price_programs
from scaling.api.public_api import entrance, in_callers_words, python_words
from scaling.api.request import change_words
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.reading import content_hash, writing
from scaling.meshes.result import Result
from scaling.meshes.units import format_time
from scaling.program.serialization import plain
from scaling.program.versions import installed_versions
from scaling.run import Run
from scaling.simulate.prediction import Prediction, prediction_dict
from scaling.simulate.step import partition_devices

if TYPE_CHECKING:
    from scaling.api.profile import ProfileComparison
    from scaling.comparing.step_advice import StepAdvice
    from scaling.pictures.shapes import Picture

KINDS = ("time", "memory", "roofline", "timeline", "mesh")  # of pictures
MOST_BARS = 40  # of `plot_side_by_side`: more cannot be read


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PredictionResult(Result, Prediction):
    """A prediction that prints as the page of `scaling predict`; see `Prediction` for the figures.

    Results pickle, and are equal if their documents are.
    """

    pricing: Pricing

    @property
    def mesh(self) -> str:
        """Axes with more than one device, in device order."""
        return self.pricing.mesh

    @property
    def cluster(self) -> Cluster:
        """The cluster, before the changes of `what_if`."""
        return self.pricing.cluster

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `scaling predict --json` prints."""
        run = self.pricing.run
        return prediction_dict(self) | {
            "mesh": self.mesh,
            "cluster": self.cluster.name,
            "nodes": self.cluster.nodes,
            "batch": asdict(run.batch) if run else None,
            "remat": str(run.remat) if run else None,
            "remat_reason": self.pricing.chosen or None,
            "added_options": dict(self.pricing.added_options),
            "notes": list(self.notes),
            "advice": [asdict(advice) for advice in self.step_advice],
        }

    @cached_property
    def step_advice(self) -> "tuple[StepAdvice, ...]":
        """What a step that is not ours could leave out, with its cost; () of a run."""
        if not self.pricing.text:
            return ()
        from scaling.comparing.step_advice import step_advice
        from scaling.hlo.parse import parse_module

        again = lambda program: price_program(replace(self.pricing, program=program))
        return step_advice(parse_module(self.pricing.text), price_program(self.pricing), again)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the page says of the program, beside its figures and what may be wrong with them."""
        added = [f"{n}={f'{v}'.lower()}" for n, v in self.pricing.added_options.items()]
        text = (
            f"compiled with {', '.join(added)}, which you have not set so; --option sets others "
            "(autotuning needs the GPU)"
        )
        return tuple(map(in_callers_words, (*self.pricing.notes, *[text] * bool(added))))

    def what_if(self, *changes: str) -> "PredictionResult":
        """Return the prediction with figures multiplied, such as "network x2" or "latency x0".

        Raises:
            InputError: an unknown figure, one that the cluster lacks, a factor below zero.
        """
        with python_words():
            more = as_texts(changes, "--what-if", "network x2")
            return priced_result(replace(self.pricing, changes=self.pricing.changes + more))

    def compare(self, profile: str | Path, steps: int | None = None) -> "ProfileComparison":
        """Hold the prediction beside a profile that jax.profiler recorded of the real run.

        Args:
            profile: a folder that `jax.profiler.trace` wrote, or a file in it: HOST.xplane.pb, or
                a trace in JSON (.json, .json.gz).
            steps: that were recorded; None: counted by the instructions that run in each step.

        Raises:
            InputError: no such profile, one of another program or machine, or of fewer steps.
        """
        from scaling.api.profile import compared, recorded_profile

        events = recorded_profile(profile, self.cluster.name, steps)
        return compared(self, self.pricing, events, steps)

    def save(self, path: str | Path) -> None:
        """Write the prediction with its classes of operations, lines of code and buffers, for
        `sc.diff` and `scaling price --against`.

        Raises:
            InputError: the file cannot be written.
        """
        from scaling.meshes.durable import write_json

        with python_words(), writing(Path(path)):
            write_json(Path(path), self.saved())

    def saved(self) -> dict[str, Any]:
        """Return what `save` writes: `to_dict()`, its breakdown, and what it was made with.

        It is the same on every machine with these versions: no clock, path or order of hashes is in
        it, and figures have nine digits, for libraries differ in the last of a double's sixteen.
        """
        from scaling.comparing.breakdown import breakdown, rounded

        pricing = self.pricing
        made = {
            **installed_versions(["jax-scaling"]),
            **pricing.program.versions,
            "figures of the cluster": content_hash(plain(pricing.cluster))[:12],
            "profile": f"{pricing.profile.name} {pricing.profile.date}",
            "what if": ", ".join(pricing.changes),
        }
        parts = breakdown(price_program(pricing))
        document: dict[str, Any] = rounded(self.to_dict() | {"made_with": made} | parts)
        return document

    def trace(self, path: str | Path) -> None:
        """Write the timeline of the step.

        Args:
            path: a file for https://ui.perfetto.dev (Chrome's trace format); NAME.xprof is a
                folder for XProf and TensorBoard (`xprof --logdir NAME.xprof`).

        Raises:
            InputError: the file cannot be written.
        """
        from scaling.report.trace import trace_events, write_trace

        priced = price_program(self.pricing, record=True)
        with writing(Path(path)):
            write_trace(trace_events(priced, title=f"predicted: {self.name}"), Path(path))

    def plot(self, kind: str, path: str | Path) -> None:
        """Write a picture (PNG, SVG or PDF) of the step.

        Args:
            kind: "time", its terms as a bar; "memory" of a device over the step, by category;
                "roofline" with every kernel; "timeline" with a row for each pipeline stage;
                "mesh", the devices coloured by their place along each axis.
            path: its suffix says the format.

        Raises:
            InputError: an unknown kind or suffix, or a file that cannot be written.
        """
        from scaling.pictures.files import check_picture, write_picture

        with python_words():
            check_picture("plot", Path(path))
            write_picture(self.picture(kind), Path(path), option="plot")

    def picture(self, kind: str) -> "Picture":
        """Return a picture of the step as shapes; for the kinds see `plot`."""
        from scaling.pictures.bars import step_bars
        from scaling.pictures.mesh import mesh_axes
        from scaling.pictures.roofline import step_roofline
        from scaling.pictures.timeline import step_memory, timeline

        check_keys([kind], KINDS, "plot", "kind")
        title = f"{self.name} on {self.mesh} of {self.cluster.name}"
        if kind == "time":
            return step_bars({self.mesh: self}, title)
        if kind == "mesh":
            program, per_node = self.pricing.program, self.cluster.devices_per_node
            devices = partition_devices(program, self.cluster)
            return mesh_axes(dict(program.mesh), per_node, title, devices)
        priced = price_program(self.pricing, record=kind != "roofline")
        if kind == "roofline":
            return step_roofline(priced, title)
        if kind == "timeline":
            return timeline(priced, title)
        return step_memory(priced, self.memory.capacity, title)

    def plot_memory(self, path: str | Path) -> None:
        """Write a picture of a device's memory over the step: `plot("memory", path)`."""
        self.plot("memory", path)

    def explain(self) -> str:
        """Return each term's formula with its numbers, the longest operations, what fills the
        memory at its peak, and the evidence of all figures.

        XLA's estimates are there if the program was compiled with `estimates=True`.
        """
        from scaling.report.explain import explanation
        from scaling.report.formatting import folded
        from scaling.report.formulas import formulas

        priced = price_program(self.pricing)
        parts = formulas(priced, self), explanation(priced, discrepancies(self.pricing, priced))
        return folded("\n\n".join(parts))

    def advice(self) -> list[str]:
        """Return changes that take less time or fit, each priced; of a run it compiles a few steps.

        A sentence such as `set={'remat': 'selective'}: 5.9 s a step instead of 6.6 s, 52.2 GB`, and
        below it the call that makes it: the one that was made with that change. In a command both
        are in its words, `--set remat=selective`. Of a step that is not a run's it is what that
        could leave out (`step_advice`), each with its line of code and its cost.
        """
        from scaling.report.advice import advice

        lines, request = [found.text for found in self.step_advice], self.pricing.request
        estimate = partial(self._estimate, {})
        for change in advice(self.pricing.run, self, self._try_run, estimate):
            line = f"{change_words(change.set, change.mesh)}{change.note}: {change.effect}"
            if request is not None:
                mesh = {} if change.mesh is None else {"mesh": str(change.mesh)}
                again = request.changed(set=change.set, **mesh).words("predict")
                line += f"\n  {again}"
            lines.append(line)
        return lines

    def _try_run(self, run: Run) -> Prediction | None:
        from scaling.training.program import program_of_run

        if run.mesh is None:
            return None
        if self.source == "analytic":
            return priced_result(self._closed(run))
        program, _ = program_of_run(run, run.mesh, self.cluster)
        return priced_result(replace(self.pricing, program=program, run=run))

    def _closed(self, run: Run) -> Pricing:
        """Return the same with the closed form of a changed run."""
        from scaling.analytic.program import closed_form

        assert run.mesh is not None  # `advice` gives runs with a mesh
        program = closed_form(run, run.mesh, self.cluster)
        return replace(self.pricing, program=program, run=run)

    def _estimate(self, known: dict[Hashable, Any], run: Run) -> tuple[float, float]:
        """Return seconds of a changed run's step and bytes of its peak, by a closed form.

        `known` keeps the costs of operations that changed runs have in common.
        """
        priced = price_program(self._closed(run), known=known)
        return float(priced.timeline.total), float(priced.memory.peak)

    def __str__(self) -> str:
        from scaling.report.formatting import workload
        from scaling.report.prediction import page

        pricing, now = self.pricing, float(self.step_time)
        first = len(pricing.notes)  # of the notes stand above the figures
        count = f"{self.devices} device{'s' * (self.devices > 1)}"
        where = [f"{self.mesh} of {self.cluster.name}, {count}", *_overrides(pricing)]
        where += [f"what if {change}" for change in pricing.changes]
        lines = [workload(pricing.run, with_remat=True)] if pricing.run else []
        lines += [*[pricing.chosen] * bool(pricing.chosen), *self.notes[:first]]
        if pricing.changes:
            before = float(priced_result(replace(pricing, changes=())).step_time)
            gain = f", {now / before - 1:+.1%}" if before else ""
            times = f"{format_time(now)} a step instead of {format_time(before)}"
            lines.append(f"with the change: {times}{gain}")
        shown = page(self, ", ".join(where), "\n".join(lines), self.notes[first:])
        return in_callers_words(shown)

    def line(self) -> str:
        where = f"{self.mesh} of {self.cluster.name}"
        time = f"at least {self.step_time_low:.4g}" if self.unknown else f"{self.step_time:.4g}"
        return f"prediction of {self.name} on {where}: {time} s"

    def _repr_html_(self) -> str:
        from scaling.report.notebook import html

        more = [("note", text) for text in self.notes]
        more += [("next", advice.text) for advice in self.step_advice]
        return html(self, f"{self.mesh} of {self.cluster.name}", more, in_callers_words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PredictionResult) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.name, self.mesh, self.cluster.name, float(self.step_time)))


def _overrides(pricing: Pricing) -> Iterator[str]:
    """Yield the figures of the cluster that were stated otherwise, as they were given."""
    given = dict(pricing.request.arguments) if pricing.request else {}
    choice = pricing.run.cluster if pricing.run and "cluster" not in given else None
    stated = {**(choice.overrides if choice else {}), **given.get("overrides", {})}
    for key, value in stated.items():
        of_all = " (all NICs of a node together)" if key == "node_network_bandwidth" else ""
        yield f"override {key}={value}{of_all}"


def priced_result(pricing: Pricing, found: Any = None) -> PredictionResult:
    """Price a program and sum it up; for `found` see `predicted`."""
    return PredictionResult(**vars(predicted(pricing, found)), pricing=pricing)


def priced_results(
    every: Sequence[Pricing | Exception],
) -> Iterator[PredictionResult | Exception]:
    """Yield `priced_result` of each, or what it raises; closed forms are priced side by side.

    What was raised before stays in its place.
    """
    closed = [p for p in every if isinstance(p, Pricing) and p.program.source == "analytic"]
    prices = dict(zip(map(id, closed), price_programs(closed), strict=True))
    for one in every:
        found = prices.get(id(one))
        if isinstance(one, Exception):
            yield one
        elif isinstance(found, Exception):
            yield found
        else:
            try:
                yield priced_result(one, found)
            except Exception as error:
                yield error


@entrance
def plot_side_by_side(
    predictions: Mapping[str, PredictionResult] | Sequence[PredictionResult],
    path: Path | str,
    title: str = "",
) -> None:
    """Draw the step times of several predictions as stacked bars, with their ranges.

    >>> import scaling as sc
    >>> where = {"cluster": "dgx-h100", "source": "analytic"}
    >>> steps = [sc.predict("gpt2-124m", mesh=mesh, **where) for mesh in ("data=8", "fsdp=8")]
    >>> sc.plot_side_by_side(steps, "steps.svg", "GPT-2 on 8 H100")    # doctest: +SKIP

    Args:
        predictions: by the label of their bar, or a sequence: labels are then name and mesh.
        path: of the picture (.png, .svg, .pdf).
        title: above it.

    Raises:
        InputError: no prediction, or too many; another suffix, a file that cannot be written.
    """
    if not isinstance(predictions, Mapping):
        several = len({p.name for p in predictions}) > 1
        labels = [f"{p.name} {p.mesh}" if several else p.mesh for p in predictions]
        predictions = {
            f"{number}. {label}": p
            for number, (label, p) in enumerate(zip(labels, predictions, strict=True), 1)
        }
    if not 0 < len(predictions) <= MOST_BARS:
        raise InputError(f"plot {path}: give 1 to {MOST_BARS} predictions, not {len(predictions)}")
    from scaling.pictures.bars import step_bars
    from scaling.pictures.files import write_picture

    write_picture(step_bars(predictions, title), Path(path))
