"""The same run on more and more nodes: strong scaling, where the batch of a step stays, and weak
scaling, where it grows with the nodes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.api.inputs import ClusterLike, MeshLike, Overrides
from scaling.api.predict import predict
from scaling.api.public_api import Drawn, entrance
from scaling.api.result import PredictionResult
from scaling.api.runs import RunLike, Settings, load_run, timed_calls
from scaling.meshes.bandwidths import Measured
from scaling.meshes.errors import InputError, reworded, whole_number
from scaling.profiles.profile import Profile

if TYPE_CHECKING:
    from scaling.pictures.shapes import Picture

MOST = 20  # numbers of nodes: two programs each, of seconds to compile


@dataclass(frozen=True, repr=False)
class ScalingCurves(Drawn):
    """Predictions by number of nodes, on as many devices each; prints as a table."""

    strong: tuple[PredictionResult, ...]
    weak: tuple[PredictionResult, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return {"strong": [prediction, ...], "weak": [...]}."""
        return {name: [p.to_dict() for p in curve] for name, curve in self._curves().items()}

    def picture(self) -> "Picture":
        """Return tokens/s and efficiency over the devices."""
        from scaling.pictures.curves import scaling_curves

        first, last = self.strong[0], self.strong[-1]
        title = f"{first.name} on {first.mesh} to {last.mesh} of {first.cluster.name}"
        return scaling_curves(self._curves(), title)

    def _curves(self) -> Mapping[str, tuple[PredictionResult, ...]]:
        return {"strong": self.strong, "weak": self.weak}

    def __str__(self) -> str:
        from scaling.report.plan import curves_table

        return curves_table(self._curves())

    def line(self) -> str:
        first, last = self.strong[0], self.strong[-1]
        return f"{first.name} on {first.devices:,} to {last.devices:,} devices, strong and weak"


@entrance
def scaling_curves(
    run: RunLike,
    cluster: ClusterLike,
    nodes: str | Iterable[int] = "1,2,4,8",
    mesh: MeshLike | None = None,
    source: str = "auto",
    set: Settings | None = None,
    *,
    device_order: str | Iterable[str] | None = None,
    overrides: Overrides | None = None,
    calibration: Path | str | Profile | None = None,
    measured: Measured | None = None,
    causal_flops: bool = False,
) -> ScalingCurves:
    """Predict a run on more and more nodes, with its batch as it is and with one that grows.

    >>> import scaling as sc
    >>> curves = sc.scaling_curves("gpt2-124m", "dgx-h100", (1, 2), source="analytic")
    >>> [p.devices for p in curves.strong], curves.weak[0].step_time <= curves.weak[1].step_time
    ([8, 16], True)

    Args:
        run, source, set, device_order, overrides, calibration, measured, causal_flops: as for
            `predict`.
        cluster: catalogue name, TOML file or Cluster.
        nodes: numbers of hosts in rising order, "1,2,4,8" or a sequence; the batch of the run is
            that on the first.
        mesh: on the first number of hosts, whose data axis grows; None: all devices are fsdp.

    Raises:
        InputError: numbers that do not rise, a mesh or a batch that does not divide.
    """
    counts = _counts(nodes)
    resolved = load_run(run, mesh=mesh, device_order=device_order, set=set)
    resolved = resolved if mesh is not None else replace(resolved, mesh=None)
    more: dict[str, Any] = {"overrides": overrides, "calibration": calibration}
    more |= {"causal_flops": causal_flops, "measured": timed_calls(measured, resolved, cluster)}

    def on(count: int, batch: int) -> PredictionResult:
        grown = replace(resolved, batch=replace(resolved.batch, global_batch=batch))
        if resolved.mesh is not None:
            what, hint = f"data={resolved.mesh.data}", f"use multiples of {counts[0]}"
            data = _grown(resolved.mesh.data, counts[0], count, what, hint)
            grown = replace(grown, mesh=replace(resolved.mesh, data=data))
        with reworded(f"on {count} nodes with {batch} sequences: "):
            return predict(grown, cluster, count, source=source, **more)

    batch = resolved.batch.global_batch
    what, hint = f"a batch of {batch}", f"set batch.global_batch to a multiple of {counts[0]}"
    batches = [_grown(batch, counts[0], count, what, hint) for count in counts]
    strong = [on(count, batch) for count in counts]
    weak = strong[:1] + list(map(on, counts[1:], batches[1:]))
    return ScalingCurves(tuple(strong), tuple(weak))


def _counts(nodes: str | Iterable[int]) -> list[int]:
    given = nodes.split(",") if isinstance(nodes, str) else list(nodes)
    said = ",".join(map(str, given))
    if not all(str(count).strip().isdecimal() for count in given):
        raise InputError(f"--scale {said}: write numbers of nodes, such as 1,2,4,8")
    counts = [whole_number("--scale", int(count)) for count in given]
    if len(counts) < 2 or counts != sorted({*counts}):
        raise InputError(f"--scale {said}: give two numbers of nodes or more, in rising order")
    if len(counts) > MOST:
        raise InputError(f"--scale has {len(counts)} numbers of nodes; at most {MOST}")
    return counts


def _grown(size: int, first: int, count: int, what: str, hint: str) -> int:
    """Return a size on the first number of nodes as it is on another."""
    if size * count % first:
        raise InputError(f"--scale: {what} on {first} nodes does not grow to {count} nodes; {hint}")
    return size * count // first
