"""`scaling config`: the resolved run.json, each value with where it came from."""

import json
from dataclasses import dataclass

from scaling.cli.options import RunCommand, Switch


@dataclass(frozen=True)
class ConfigCommand(RunCommand):
    """Print the whole description of a run, each value with where it came from.

    Example: scaling config llama3-8b --set batch.microbatches=8
    """

    json: Switch = False
    """Print a run.json, without the origins."""

    def execute(self) -> int:
        """Print the listing, or the document."""
        from scaling.api.settings import value_origins
        from scaling.run import run_dict

        run = self.load()
        document = run_dict(run)
        if self.json:
            print(json.dumps(document))
            return 0
        options = {"mesh": self.mesh, "device_order": self.device_order}
        rows = value_origins(document, self.run, self.set, [k for k, v in options.items() if v])
        width = max(len(f"{key} = {value}") for key, value, _ in rows)
        for key, value, origin in rows:
            print(f"{f'{key} = {value}'.ljust(min(width, 60))}  # {origin}")
        return 0
