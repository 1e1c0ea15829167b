"""What a prediction is computed from: a program, where it is priced, and its price.

Pricing (program, cluster, profile, changes) -> price -> Priced, summed up -> Prediction
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scaling.analytic.software import traits_of
from scaling.api.inputs import as_texts
from scaling.api.public_api import in_callers_words
from scaling.api.request import Request
from scaling.hlo.user_hints import LARGEST
from scaling.meshes.catalog import lint_cluster
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.memory_pool import TRAINERS, xla_pool
from scaling.meshes.shape import axes_text, longer
from scaling.profiles.profile import Evidence, Profile, StepFit
from scaling.program.ir import Number, Program
from scaling.run import Run
from scaling.simulate.columns import price_all
from scaling.simulate.prediction import Prediction
from scaling.simulate.step import Priced, price
from scaling.simulate.summary import summarize
from scaling.simulate.what_if import LINKS, changed, changed_program, check_changes, figure_name

if TYPE_CHECKING:
    from scaling.comparing.discrepancy import Discrepancy


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
    chosen: str = ""  # why the run has the policy that its remat "auto" stands for
    tokens: float | None = None  # of one step that is not ours
    model_flops: float | None = None  # of one such step on all devices
    memory_fraction: float | None = None  # that its pool is given; None: see `xla_pool`
    added_options: Mapping[str, Any] = field(default_factory=dict)  # of XLA, which nobody asked for
    notes: tuple[str, ...] = ()  # that the page has above its figures, on a dump's mesh
    text: str = field(default="", repr=False)  # the compiled program of a step that is not ours
    compile_seconds: float = 0.0  # that the program took to make, or to find in the cache
    request: Request | None = None  # as it was made; None: of a step that is not ours

    @property
    def mesh(self) -> str:
        """Axes with more than one device, in device order: `fsdp=64,tensor=8`."""
        return axes_text(longer(self.program.mesh)) or "data=1"


def read_changes(what_if: str | Iterable[str]) -> tuple[str, ...]:
    """Return the changes; raise InputError for one that cannot be read."""
    changes = as_texts(what_if, "--what-if", "network x2")
    check_changes(changes)
    return changes


def step_figures(
    what_if: str | Iterable[str],
    tokens: float | None,
    model_flops: float | None,
    memory_fraction: float | None,
) -> dict[str, Any]:
    """Return fields of a Pricing of a step that is not ours.

    Raises:
        InputError: a figure that no step has, before anything is compiled.
    """
    changes = read_changes(what_if)
    for name, value in (("--tokens", tokens), ("--model-flops", model_flops)):
        if value is not None and not 0 < value <= LARGEST:
            raise InputError(
                f"{name}={value!r} must be a positive number up to {LARGEST:g}, of one whole step"
            )
    xla_pool(memory_fraction)  # raises
    figures = {"tokens": tokens, "model_flops": model_flops, "memory_fraction": memory_fraction}
    return {"changes": changes, **figures}


def with_step_error(profile: Profile, software: str) -> Profile:
    """The profile with the errors of whole steps of a software, unless it has measured ones."""
    if (software,) not in profile.cache:
        traits = traits_of(software)
        evidence = Evidence(traits.evidence, "2026-11", "calibrated")
        fit = profile.step or StepFit(1.0, evidence, traits.range)
        profile.cache[software,] = replace(profile, step=fit)
    known: Profile = profile.cache[software,]
    return known


def price_programs(
    pricings: Sequence[Pricing],
) -> list[tuple[Priced, tuple[Number, Number]] | Exception]:
    """Return the price and the range of each closed form; what was raised for one takes its place.

    Those that are alike are priced in arrays.
    """
    try:
        return list(
            price_all(
                (changed_program(p.program, p.changes), *changed(p.cluster, p.profile, p.changes))
                for p in pricings
            )
        )
    except Exception as error:
        half = len(pricings) // 2
        if not half:
            return [error]
        return [*price_programs(pricings[:half]), *price_programs(pricings[half:])]


def price_program(
    pricing: Pricing, record: bool = False, known: dict[Hashable, Any] | None = None
) -> Priced:
    """Return the program with its costs; for `record` and `known` see `price`."""
    cluster, profile = changed(pricing.cluster, pricing.profile, pricing.changes)
    program = changed_program(pricing.program, pricing.changes)
    return price(program, cluster, profile, record, known)


def predicted(
    pricing: Pricing, found: tuple[Priced, tuple[Number, Number]] | None = None
) -> Prediction:
    """Price a program and sum it up, with warnings about what the price rests on.

    `found`: the price and the range of its step, if they are known.
    """
    check_changes(pricing.changes)
    priced, span = found or (price_program(pricing), None)
    run = pricing.run
    warnings = [*pricing.warnings, *_implausible_changes(pricing)]
    warnings += _changes_without_effect(pricing, priced)
    if unexpected := discrepancies(pricing, priced):
        from scaling.comparing.audit import noticeable

        warnings += map(str, noticeable(unexpected, priced))
    given = (pricing.tokens, pricing.model_flops)
    pool = TRAINERS if run else xla_pool(pricing.memory_fraction)
    summed = summarize(priced, run, pricing.causal_flops, warnings, given, pool, span)
    return replace(summed, warnings=tuple(map(in_callers_words, summed.warnings)))


def discrepancies(pricing: Pricing, priced: Priced) -> "list[Discrepancy]":
    """Return what the program does otherwise than the analytic count expects."""
    run = pricing.run
    if run is None or run.mesh is None or pricing.program.source == "analytic":
        return []
    if not run.train.trains_all or run.train.loss:  # the table is of all gradients, and no more
        return []
    from scaling.comparing.audit import audit

    return audit(priced, run, run.mesh)


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
        if figure_name(change) in (*LINKS, "oversubscription"):
            others = (*pricing.changes[:i], *pricing.changes[i + 1 :])
            without = price_program(replace(pricing, changes=others))
            if without.timeline.by_name == priced.timeline.by_name:
                yield f"--what-if {change!r} changed nothing: such links hold up no collective"
