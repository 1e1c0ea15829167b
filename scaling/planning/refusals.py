"""Why meshes cannot run a run. What depends on some axes alone is found once for all meshes.

    trained    stage, context, fsdp
    divided    the batch over its shards; then tensor and context, expert, fsdp, stage

The first that is wrong is named, as `check_trainable_mesh` and `rules_for` have it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.run import OURS, Run
from scaling.run.parallelism.checks import check_trainable_mesh
from scaling.run.parallelism.rules import rules_for

Check = Callable[[Run, MeshShape], Any]  # raises InputError


@dataclass(frozen=True)
class Refusals:
    """Of one run, on any number of meshes."""

    run: Run
    known: dict[tuple[Any, ...], str] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)  # by microbatches

    def of(self, mesh: MeshShape, microbatches: int) -> str:
        """Why the run cannot run on a mesh with so many microbatches; "" if it can."""
        sequences, shards = self.run.batch.global_batch, mesh.batch_shards
        between = {"data": shards, "tensor": mesh.tensor, "context": mesh.context}
        alone = {"stage": mesh.stage, "context": mesh.context, "fsdp": mesh.fsdp}
        if refusal := self._of(_check_trained, microbatches, **alone):
            return refusal
        if sequences % shards or sequences // shards % microbatches:
            each = {"data": mesh.data, "fsdp": mesh.fsdp, "expert": mesh.expert}
            return self._of(rules_for, microbatches, **each)  # names each axis
        parts = between, {"expert": mesh.expert}, {"fsdp": mesh.fsdp}, between | alone | {"fsdp": 1}
        return next(filter(None, (self._of(rules_for, microbatches, **p) for p in parts)), "")

    def _of(self, check: Check, microbatches: int, **sizes: Any) -> str:
        key = check, microbatches, *sizes, *sizes.values()
        if key not in self.known:
            mesh = replace(MeshShape(), **sizes)
            self.known[key] = _refusal(check, self._with(microbatches), mesh)
        return self.known[key]

    def _with(self, microbatches: int) -> Run:
        """The run with so many; others' interleaved 1F1B divides as ours does."""
        if microbatches in self.runs:
            return self.runs[microbatches]
        run = self.run
        if run.software != OURS and run.pipeline.virtual_stages > 1:
            run = replace(run, pipeline=replace(run.pipeline, schedule="interleaved"))
        batch, sharding = run.batch, replace(run.sharding, zero_stage=3)
        tried = replace(run, batch=replace(batch, microbatches=microbatches), sharding=sharding)
        return self.runs.setdefault(microbatches, tried)


def _refusal(check: Check, run: Run, mesh: MeshShape) -> str:
    try:
        check(run, mesh)
    except InputError as error:
        return str(error)
    return ""


def _check_trained(run: Run, mesh: MeshShape) -> None:
    if run.software == OURS:
        check_trainable_mesh(run, mesh, "plan")
