"""`scaling config`: the resolved run.json, each value with where it came from."""

import json
from dataclasses import dataclass

import scaling as sc
from scaling.cli.options import Command, KeyValues, RunName, Switch, Text


@dataclass(frozen=True)
class ConfigCommand(Command):
    """Print the whole description of a run, each value with where it came from.

    Example: scaling config llama3-8b --set batch.microbatches=8
    """

    run: RunName
    """Recipe name, file.py:function, run.json, its folder, or a Hugging Face config.json."""
    mesh: Text = None
    """Axis sizes; replaces the run's mesh."""
    device_order: Text = None
    """Axes joined by commas, outermost first; axes that are not named follow in default order."""
    set: KeyValues = ()
    """Any value of run.json by dotted key, such as train.learning_rate=1e-4."""
    json: Switch = False
    """Print a run.json, without the origins."""

    def execute(self) -> int:
        """Print the listing, or the document."""
        from scaling.api.settings import origins
        from scaling.run import run_dict

        run = sc.load_run(self.run, mesh=self.mesh, device_order=self.device_order, set=self.set)
        document = run_dict(run)
        if self.json:
            print(json.dumps(document))
            return 0
        options = {"mesh": self.mesh, "device_order": self.device_order}
        rows = origins(document, self.run, self.set, [k for k, v in options.items() if v])
        width = max(len(f"{key} = {value}") for key, value, _ in rows)
        for key, value, origin in rows:
            print(f"{f'{key} = {value}'.ljust(min(width, 60))}  # {origin}")
        return 0
