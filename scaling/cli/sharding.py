"""`scaling sharding`: every parameter, and the optimiser's state, on a mesh that need not exist."""

import json
from dataclasses import asdict

from scaling.meshes.errors import InputError
from scaling.optimizers import optimizer_of
from scaling.parallelism.checks import check_trainable
from scaling.parallelism.rules import notes, resolved_mesh, rules_for, with_mesh
from scaling.parallelism.sequence import sequence_cut
from scaling.recipes import resolve


def sharding_command(text: str, mesh: str | None, devices: int | None, as_json: bool) -> int:
    """Print the sharding table of a run; returns the exit code."""
    if devices is not None and devices < 1:
        raise InputError(f"--devices {devices} must be a positive whole number")
    run = with_mesh(resolve(text), mesh)
    shape = resolved_mesh(run, devices)
    check_trainable(run, shape)
    rules, cut = rules_for(run, shape), sequence_cut(run, shape)

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
    from scaling.train.execution import execution_for
    from scaling.train.step import abstract_state

    with jax.sharding.use_abstract_mesh(abstract_mesh(shape)):
        execution = execution_for(run, rules, "cpu")
        state = abstract_state(run.model, execution, run.train, optimizer_of(run))
        held = held_bytes(state.params, execution, run.batch.microbatches)
    all_rows, kept = rows(state.params, rules), state_bytes(state.optimizer)
    notices = notes(run, rules) + warnings(all_rows)
    if as_json:
        document = {"name": run.name, "mesh": str(shape), "devices": shape.devices}
        document |= {"parameters": [asdict(row) for row in all_rows], "optimizer_state": kept}
        document |= {"held": held} if held else {}
        document |= {"warnings": notices, **({"sequence": asdict(cut)} if cut else {})}
        print(json.dumps(document))
    else:
        lines = [table(all_rows), state_line(kept, optimizer_of(run))]
        lines += [*([held_line(held)] if held else []), *([str(cut)] if cut else [])]
        print("\n".join([*lines, *(f"warning: {line}" for line in notices)]))
    return 0
