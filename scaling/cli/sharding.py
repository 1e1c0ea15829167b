"""`scaling sharding`: every parameter, the optimiser's state and what remat keeps, on any mesh."""

import json
from dataclasses import asdict, dataclass

from scaling.cli.options import File, Number, RunCommand, Switch
from scaling.meshes.errors import InputError

ROW = 8  # devices that are drawn beside one another: as many as most hosts have


@dataclass(frozen=True)
class ShardingCommand(RunCommand):
    """Show every parameter's shape, spec and bytes per device on a mesh, and the activations that
    are kept for the backward pass; needs no devices.

    Example: scaling sharding llama3-70b --mesh fsdp=64,tensor=8
    """

    devices: Number = None
    """Number of devices; must be the mesh's, where one is given (default: 1)."""
    plot: File = None
    """Write a picture of the devices, coloured by their place along each axis (.png or .svg)."""
    json: Switch = False
    """Print one JSON document instead of a table."""

    def execute(self) -> int:
        """Print the sharding table."""
        from scaling.analytic.saved import saved_rows
        from scaling.compile.quiet import quiet
        from scaling.report.activations import saved_table
        from scaling.run.optimizers import optimizer_of
        from scaling.run.parallelism.checks import check_trainable
        from scaling.run.parallelism.rules import notes, resolved_mesh, rules_for
        from scaling.run.parallelism.sequence import sequence_cut
        from scaling.run.recipes import with_dividing_microbatches

        if self.devices is not None and self.devices < 1:
            raise InputError(f"--devices {self.devices} must be a positive whole number")
        self._check_output()
        run = self.load()
        mesh = resolved_mesh(run, self.devices)
        run, lowered = with_dividing_microbatches(run, mesh)
        check_trainable(run, mesh)
        rules, split = rules_for(run, mesh), sequence_cut(run, mesh)
        saved = saved_rows(run, mesh)

        with quiet():
            import jax

            from scaling.meshes.devices import abstract_mesh
            from scaling.report.shardings import (
                held_bytes,
                held_line,
                rows,
                state_bytes,
                state_line,
                table,
                warnings,
            )
            from scaling.training.execution import execution_for
            from scaling.training.optim.trained import trained_line
            from scaling.training.step import abstract_state

            with jax.sharding.use_abstract_mesh(abstract_mesh(mesh)):
                execution = execution_for(run, rules, "cpu")
                state = abstract_state(run.model, execution, run.train, optimizer_of(run))
                held = held_bytes(state.params, execution, run.batch.microbatches)
            all_rows, kept = rows(state.params, rules), state_bytes(state.optimizer)
            notices = lowered + notes(run, rules) + warnings(all_rows)
        if self.plot is not None:
            from scaling.pictures.plots import plot_mesh

            plot_mesh(mesh.sizes, ROW, f"{run.name} on {mesh}", self.plot)
        if self.json:
            document = {"name": run.name, "mesh": str(mesh), "devices": mesh.devices}
            document |= {"parameters": [asdict(row) for row in all_rows], "optimizer_state": kept}
            document |= {"activations": [asdict(row) for row in saved], "remat": str(run.remat)}
            document |= {"held": held} if held else {}
            document |= {"warnings": notices, **({"sequence": asdict(split)} if split else {})}
            print(json.dumps(document))
        else:
            lines = [table(all_rows), *trained_line(state.params, run.train)]
            lines += [state_line(kept, optimizer_of(run))]
            lines += [*([held_line(held)] if held else []), *([str(split)] if split else [])]
            lines += ["", saved_table(saved, run.remat)]
            print("\n".join([*lines, *(f"warning: {line}" for line in notices)]))
        return 0

    def _check_output(self) -> None:
        """Refuse a picture that cannot be written, before the work."""
        from scaling.api.output_paths import check_outputs
        from scaling.pictures.plots import check_picture

        check_outputs({"--plot": self.plot})
        check_picture("--plot", self.plot)
