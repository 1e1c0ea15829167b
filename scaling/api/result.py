"""The result of a prediction, with everything that it was computed from.

    Pricing (program, cluster, profile, changes) -> price, sum up -> PredictionResult

A result keeps its Pricing, so that it can be priced again: with a figure changed (`what_if`), or
with its timeline recorded (`trace`).
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.analytic.software import habits_of
from scaling.api.public_api import python_words
from scaling.api.request import Request, change_words
from scaling.api.settings import as_texts
from scaling.meshes.catalog import lint_cluster
from scaling.meshes.cluster import Cluster
from scaling.meshes.memory_pool import TRAINERS, xla_pool
from scaling.meshes.reading import writing
from scaling.meshes.units import format_time
from scaling.profiles.io import LINKS
from scaling.profiles.profile import Evidence, Profile, StepFit
from scaling.program.ir import Program
from scaling.run import Run
from scaling.simulate.prediction import Prediction, prediction_dict
from scaling.simulate.step import Priced, price
from scaling.simulate.summary import summarize
from scaling.simulate.what_if import changed, changed_program, check_changes

if TYPE_CHECKING:
    from scaling.api.profile import ProfileComparison
    from scaling.comparing.discrepancy import Discrepancy
    from scaling.report.advice import Advice


@dataclass(frozen=True)
class Pricing:
    """A program and where it is priced."""

    program: Program
    cluster: Cluster
    profile: Profile
    run: Run | None = None  # with its mesh; None: a step that is not ours
    changes: tuple[str, ...] = ()  # as `what_if` takes them
    causal_flops: bool = False  # count attention's model FLOPs of the unmasked half only
    warnings: tuple[str, ...] = ()  # about the cluster, the mesh and the profile
    tokens: float | None = None  # of one step that is not ours
    model_flops: float | None = None  # of one such step on all devices
    memory_fraction: float | None = None  # that its pool is given; None: see `xla_pool`
    compile_seconds: float = 0.0  # that the program took to make, or to find in the cache
    request: Request | None = None  # as it was made; None: of a step that is not ours

    @property
    def mesh(self) -> str:
        """Axes with more than one device, in device order: `fsdp=64,tensor=8`."""
        sizes = self.program.mesh
        return ",".join(f"{axis}={n}" for axis, n in sizes.items() if n > 1) or "data=1"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PredictionResult(Prediction):
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
        }

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

        return compared(self, recorded_profile(profile, self.cluster.name, steps), steps)

    def trace(self, path: str | Path) -> None:
        """Write the timeline of the step for https://ui.perfetto.dev (Chrome's trace format).

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
        from scaling.api.plots import plot_prediction

        with python_words():
            plot_prediction(self, kind, Path(path))

    def plot_memory(self, path: str | Path) -> None:
        """Write a picture of a device's memory over the step: `plot("memory", path)`."""
        self.plot("memory", path)

    def explain(self) -> str:
        """Return each term's formula with its numbers, the longest operations, what fills the
        memory at its peak, and the evidence of all figures.

        XLA's estimates are there if the program was compiled with `estimates=True`.
        """
        from scaling.report.explain import explanation
        from scaling.report.formulas import formulas

        priced = price_program(self.pricing)
        parts = formulas(priced, self), explanation(priced, _discrepancies(self.pricing, priced))
        return "\n\n".join(parts)

    def advice(self) -> list[str]:
        """Return changes of the run that take less time or fit, each priced; compiles a few steps.

        A sentence such as `set={'remat': 'selective'}: 5.9 s a step instead of 6.6 s, 52.2 GB`, and
        below it the call that makes it: the one that was made with that change. In a command both
        are in its words, `--set remat=selective`.
        """
        from scaling.report.advice import advice

        return [
            self._said(found)
            for found in advice(self.pricing.run, self, self._try_run, self._closed)
        ]

    def _said(self, found: "Advice") -> str:
        """Return an advice, and the request with its change."""
        sentence = f"{change_words(found.set, found.mesh)}{found.note}: {found.effect}"
        if self.pricing.request is None:
            return sentence
        mesh = {} if found.mesh is None else {"mesh": str(found.mesh)}
        return (
            f"{sentence}\n  {self.pricing.request.changed(set=found.set, **mesh).words('predict')}"
        )

    def _try_run(self, run: Run) -> Prediction | None:
        """Return the prediction of a changed run on the same cluster."""
        from scaling.training.program import program_of_run

        if run.mesh is None or self.source == "analytic":
            return self._closed(run)
        program, _ = program_of_run(run, run.mesh, self.cluster)
        return priced_result(replace(self.pricing, program=program, run=run))

    def _closed(self, run: Run) -> Prediction | None:
        """Return the same by a closed form."""
        from scaling.analytic.program import closed_form

        if run.mesh is None:
            return None
        program = closed_form(run, run.mesh, self.cluster)
        return priced_result(replace(self.pricing, program=program, run=run))

    def __str__(self) -> str:
        from scaling.report.formatting import workload
        from scaling.report.prediction import page

        count = f"{self.devices} device{'s' * (self.devices > 1)}"
        where = [f"{self.mesh} of {self.cluster.name}, {count}", *_overrides(self.pricing)]
        where += [f"what if {change}" for change in self.pricing.changes]
        lines = [workload(run, with_remat=True)] if (run := self.pricing.run) else []
        return page(self, ", ".join(where), "\n".join([*lines, *self._change()]))

    def _change(self) -> Iterator[str]:
        """Yield the step time beside the one without the changes of `what_if`, if there are any."""
        if not self.pricing.changes:
            return
        now = float(self.step_time)
        before = float(priced_result(replace(self.pricing, changes=())).step_time)
        gain = f", {now / before - 1:+.1%}" if before else ""
        yield f"with the change: {format_time(now)} a step instead of {format_time(before)}{gain}"

    def __repr__(self) -> str:
        where = f"{self.mesh} of {self.cluster.name}"
        time = f"at least {self.step_time_low:.4g}" if self.unknown else f"{self.step_time:.4g}"
        return f"<prediction of {self.name} on {where}: {time} s>"

    def _repr_html_(self) -> str:
        from scaling.report.notebook import html

        return html(self, f"{self.mesh} of {self.cluster.name}")

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


def with_step_error(profile: Profile, software: str) -> Profile:
    """The profile with the errors of whole steps of a software, unless it has measured ones."""
    habits = habits_of(software)
    evidence = Evidence(habits.evidence, "2026-11", "calibrated")
    return replace(profile, step=profile.step or StepFit(1.0, evidence, habits.range))


def price_program(pricing: Pricing, record: bool = False) -> Priced:
    """Return the program with its costs; `record` keeps every event of the timeline."""
    cluster, profile = changed(pricing.cluster, pricing.profile, pricing.changes)
    program = changed_program(pricing.program, pricing.changes)
    return price(program, cluster, profile, record=record)


def priced_result(pricing: Pricing) -> PredictionResult:
    """Price a program and sum it up."""
    check_changes(pricing.changes)
    priced = price_program(pricing)
    run = pricing.run
    warnings = [*pricing.warnings, *_implausible_changes(pricing)]
    warnings += _changes_without_effect(pricing, priced)
    warnings += _noticeable(pricing, priced)
    given = (pricing.tokens, pricing.model_flops)
    pool = TRAINERS if run else xla_pool(pricing.memory_fraction)
    prediction = summarize(priced, run, pricing.causal_flops, warnings, given, pool)
    return PredictionResult(**vars(prediction), pricing=pricing)


def _discrepancies(pricing: Pricing, priced: Priced) -> "list[Discrepancy]":
    """Return what the program does otherwise than the analytic count expects."""
    run = pricing.run
    if run is None or run.mesh is None or pricing.program.source == "analytic":
        return []
    if not run.train.trains_all:  # the table is that of a step that trains all parameters
        return []
    from scaling.comparing.audit import audit

    return audit(priced, run, run.mesh)


def _noticeable(pricing: Pricing, priced: Priced) -> list[str]:
    """Return those that take time enough to be a warning."""
    found = _discrepancies(pricing, priced)
    if not found:
        return []
    from scaling.comparing.audit import noticeable

    return [str(discrepancy) for discrepancy in noticeable(found, priced)]


def _implausible_changes(pricing: Pricing) -> Iterator[str]:
    """Yield a warning for each figure that no machine has and that a change to it has made.

    Infinite ones are meant.
    """
    if changes := [text for text in pricing.changes if not text.rstrip().endswith("inf")]:
        before = set(lint_cluster(pricing.cluster))
        cluster, _ = changed(pricing.cluster, pricing.profile, changes)
        yield from (f"--what-if: {text}" for text in lint_cluster(cluster) if text not in before)


def _changes_without_effect(pricing: Pricing, priced: Priced) -> Iterator[str]:
    """Yield a warning for each change of links that the step does not wait for."""
    for i, change in enumerate(pricing.changes):
        if change.split()[0] in (*LINKS, "oversubscription"):
            others = (*pricing.changes[:i], *pricing.changes[i + 1 :])
            without = price_program(replace(pricing, changes=others))
            if without.timeline.by_name == priced.timeline.by_name:
                yield f"--what-if {change!r} changed nothing: such links hold up no collective"
