"""How a mesh cuts a model: every parameter's shard, the optimizer's state, kept activations."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from scaling.analytic.saved import saved_rows
from scaling.api.inputs import MeshLike
from scaling.api.public_api import Drawn, entrance
from scaling.api.runs import RunLike, Settings, load_run
from scaling.compile.quiet import quiet
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.run.optimizers import optimizer_of
from scaling.run.parallelism.checks import check_trainable
from scaling.run.parallelism.rules import notes, resolved_mesh, rules_for
from scaling.run.parallelism.sequence import sequence_cut
from scaling.run.recipes import with_dividing_microbatches

if TYPE_CHECKING:
    from scaling.pictures.shapes import Picture

ROW = 8  # devices that are drawn beside one another: as many as most hosts have


@dataclass(frozen=True, repr=False)
class ShardingTable(Drawn):
    """The table of `scaling sharding`; prints as it."""

    name: str
    mesh: MeshShape
    document: dict[str, Any]
    lines: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the document of `scaling sharding --json`."""
        return self.document

    def picture(self) -> "Picture":
        """Return the devices, coloured by their place along each axis."""
        from scaling.pictures.mesh import mesh_axes

        return mesh_axes(self.mesh.sizes, ROW, self.line())

    def line(self) -> str:
        return f"{self.name} on {self.mesh}"

    def __str__(self) -> str:
        return "\n".join(self.lines)


@entrance
def sharding(
    run: RunLike,
    mesh: MeshLike | None = None,
    *,
    devices: int | None = None,
    device_order: str | Iterable[str] | None = None,
    set: Settings | None = None,
) -> ShardingTable:
    """Show every parameter's shape, spec and bytes per device on a mesh, and kept activations.

    >>> import scaling as sc
    >>> found = sc.sharding("llama3-8b", mesh="fsdp=8")    # doctest: +SKIP
    >>> found.to_dict()["parameters"][0]["device_bytes"]   # doctest: +SKIP
    262668288

    The activations are those that are kept for the backward pass. Needs no devices.

    Args:
        devices: number of devices; must be the mesh's, where one is given; None: 1.

    Raises:
        InputError: unknown names, a mesh that the trainer cannot use.
    """
    if devices is not None and devices < 1:
        raise InputError(f"--devices {devices} must be a positive whole number")
    resolved = load_run(run, mesh=mesh, device_order=device_order, set=set)
    shape = resolved_mesh(resolved, devices)
    resolved, lowered = with_dividing_microbatches(resolved, shape)
    check_trainable(resolved, shape)
    rules, split = rules_for(resolved, shape), sequence_cut(resolved, shape)
    saved = saved_rows(resolved, shape)
    optimizer = optimizer_of(resolved)

    with quiet():
        import jax

        from scaling.meshes.devices import abstract_mesh
        from scaling.report import shardings
        from scaling.training.execution import execution_for
        from scaling.training.optim.trained import trained_line
        from scaling.training.step import abstract_state

        with jax.sharding.use_abstract_mesh(abstract_mesh(shape)):
            execution = execution_for(resolved, rules, "cpu")
            state = abstract_state(resolved, execution)
            held = shardings.held_bytes(state.params, execution, resolved.batch.microbatches)
        rows, kept = shardings.rows(state.params, rules), shardings.state_bytes(state.optimizer)
        notices = lowered + notes(resolved, rules) + shardings.warnings(rows)
        lines = [shardings.table(rows), *trained_line(state.params, resolved.train)]
        lines += [shardings.state_line(kept, optimizer)]
        lines += [*([shardings.held_line(held)] if held else []), *([str(split)] if split else [])]
        lines += ["", shardings.saved_table(saved, resolved.remat)]
        lines += [f"warning: {line}" for line in notices]
    document = {
        "name": resolved.name,
        "mesh": str(shape),
        "devices": shape.devices,
        "parameters": [asdict(row) for row in rows],
        "optimizer_state": kept,
        "activations": [asdict(row) for row in saved],
        "remat": str(resolved.remat),
        **({"held": held} if held else {}),
        "warnings": notices,
        **({"sequence": asdict(split)} if split else {}),
    }
    return ShardingTable(resolved.name, shape, document, tuple(lines))
