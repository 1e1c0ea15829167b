"""What a plan may choose besides the settings of a mesh: each choice is a run of its own.

    pipeline       schedules and virtual stages, and a first and a last stage with fewer layers
    remat          stages that compute some of their layers again, not all or none
    device order   each axis with neighbouring devices, in turn
    precision      formats of the products
    batch          doublings within a band of global batches

The first variant is the run as it is. A variant stands for the meshes on which it is another step
than those before it: a pipeline's on meshes with stages, an order where it moves an axis.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from scaling.analytic.software import traits_of
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, whole_number
from scaling.meshes.shape import AXES, MeshShape
from scaling.meshes.units import parse_whole
from scaling.planning.constraints import PARTIAL, Constraint
from scaling.planning.space import Choices, all_choices
from scaling.run import OURS, Pipeline, Run
from scaling.run.run import Dtype

VARIED = (  # by dotted key of run.json
    *("batch.global_batch", "precision.compute"),
    *("pipeline.schedule", "pipeline.virtual_stages", "pipeline.layers"),
)
VIRTUAL = (2, 4)  # stages of a stage: published recipes have 2 to 8 (Megatron-LM, 2104.04473)
INTERLEAVES = (OURS, "megatron", "nemo")  # software with an interleaved schedule
SPLITS = ("megatron", "nemo", "aleph-alpha")  # ... that deals layers out as it is told


@dataclass(frozen=True)
class Variant:
    """A run, and the meshes for which it stands."""

    run: Run
    base: Run
    pipelines: bool = False  # only meshes with stages
    partial: bool = False  # stages compute some of their layers again

    def choices(self, devices: int, constraints: Sequence[Constraint] = ()) -> Iterator[Choices]:
        """The configurations of the meshes for which it stands, as constraints have it."""
        return all_choices(self.run, devices, constraints, self.partial, self.covers)

    def covers(self, mesh: MeshShape) -> bool:
        """True for meshes on which it is not the base."""
        if self.pipelines and mesh.stage == 1:
            return False
        cut = lambda order: [axis for axis in order if getattr(mesh, axis) > 1]
        orders = self.run.device_order, self.base.device_order
        return orders[0] == orders[1] or cut(orders[0]) != cut(orders[1])


def variants(
    run: Run,
    wide: bool,
    batches: Sequence[int],
    formats: Sequence[Dtype],
    partial: bool = False,
) -> Iterator[Variant]:
    """The run, and those that differ from it in what is asked for.

    Args:
        run: with or without a mesh.
        wide: also other pipelines and device orders, of those that its software can run.
        batches: global batches; none: the run's own.
        formats: of the products; none: the run's own.
        partial: also remat of some layers of a stage, which `wide` has, of software that does it.
    """
    is_own = run.pipeline.remat_layers is not None or traits_of(run.software).recomputes == "all"
    remats = (False, True) if (wide or partial) and not is_own else (False,)
    for batch in batches or [run.batch.global_batch]:
        for compute in formats or [run.precision.compute]:
            precision = replace(run.precision, compute=compute)
            base = replace(run, batch=replace(run.batch, global_batch=batch), precision=precision)
            for pipeline in [run.pipeline, *(pipelines(run) if wide else ())]:
                for order in [run.device_order, *(orders(run) if wide else ())]:
                    mesh = run.mesh and replace(run.mesh, device_order=order)
                    other = replace(base, pipeline=pipeline, device_order=order, mesh=mesh)
                    for some in remats:
                        yield Variant(other, base, pipeline != run.pipeline, some)


def pipelines(run: Run) -> Iterator[Pipeline]:
    """Pipelines beside the run's own that its software can run."""
    own = run.pipeline
    more = VIRTUAL if run.software in INTERLEAVES else ()
    every = [Pipeline("1f1b"), *(Pipeline("interleaved", n) for n in more)]
    if run.software in SPLITS:
        every.append(Pipeline("1f1b", layers="by-cost"))
    again = own.remat_layers, own.remat_fewer
    every = [replace(p, remat_layers=again[0], remat_fewer=again[1]) for p in every]
    yield from (pipeline for pipeline in every if pipeline != own)


def orders(run: Run) -> Iterator[tuple[str, ...]]:
    """Device orders in which another axis than the run's is innermost."""
    for axis in run.device_order[:-1] if run.device_order == AXES else ():
        yield (*(other for other in run.device_order if other != axis), axis)


def runs_on(cluster: Cluster, every: Sequence[Variant]) -> Sequence[Variant]:
    """Those whose products the chip multiplies; all where it does none of them."""
    peaks = cluster.accelerator.peaks
    return [v for v in every if v.run.precision.compute in peaks] or every


def settings_besides(run: Run, base: Run) -> dict[str, Any]:
    """What a variant sets, by dotted key of run.json."""
    keys = (*VARIED, PARTIAL, "pipeline.remat_fewer")
    new, old = (attrgetter(*keys)(each) for each in (run, base))
    return {key: a for key, a, b in zip(keys, new, old, strict=True) if a != b}


def with_settings(every: Iterable[Variant], settings: Mapping[str, Any]) -> list[Variant]:
    """The variants that have these settings, by dotted key.

    Raises:
        InputError: none has.
    """
    found = list(every)
    for key, value in settings.items():
        has = dict.fromkeys(str(attrgetter(key)(variant.run)) for variant in found)
        found = [v for v in found if str(attrgetter(key)(v.run)) == str(value)]
        if not found:
            raise InputError(
                f"--fixed {key}={value}: no run that is tried has it; there are {', '.join(has)} "
                f"(--wide tries more pipelines): state it by --set {key}={value}"
            )
    return found


def batch_band(batch: int | str) -> list[int]:
    """Global batches to try: one, or of `512:2048` the smaller, its doublings, and the larger."""
    low, high = ends("--batch", batch, "512:2048")
    return sorted({high, *(low << i for i in range((high // low).bit_length()))})


def ends(option: str, numbers: int | str, example: str) -> tuple[int, int]:
    """Both ends of FROM:TO, or one number twice.

    Raises:
        InputError: it is neither, or ends below its start.
    """
    if not isinstance(numbers, str):
        return (whole_number(option, numbers),) * 2
    first, colon, last = (part.strip() for part in numbers.partition(":"))
    try:
        low, high = parse_whole(first), parse_whole(last if colon else first)
    except ValueError:
        raise InputError(
            f"{option} {numbers!r}: write a number, or FROM:TO, such as {example}"
        ) from None
    whole_number(option, low)
    if high < low:
        raise InputError(f"{option} {numbers} is empty: it ends below its start; use {high}:{low}")
    return low, high
