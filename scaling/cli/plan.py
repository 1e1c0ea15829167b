"""`scaling plan`: the best meshes for a run on a cluster."""

import json
from dataclasses import dataclass
from typing import Literal

import scaling as sc
from scaling.cli.options import File, KeyValues, Number, Real, RunCommand, Switch, Text, Whole


@dataclass(frozen=True)
class PlanCommand(RunCommand):
    """Find the best meshes for a run, with microbatches, remat and ZeRO stage, that fit in memory.

    Example: scaling plan llama3-8b --cluster dgx-h100 --nodes 8
    """

    cluster: Text = None
    """Catalogue name or TOML file (default: the run's, else host, this machine)."""
    nodes: Number = None
    """Number of hosts (default: the run's, else 1)."""
    override: KeyValues = ()
    """A figure of the cluster, such as node_network_bandwidth=3200Gb/s (all NICs of a node)."""
    calibration: File = None
    """File of scaling calibrate to price with."""
    top: Whole = 10
    """Most plans to print, each of another mesh."""
    objective: Literal["time", "cost", "energy"] = "time"
    """What is least: time of a step, devices x time, or energy at the chips' power limit; the last
    two also try fewer nodes."""
    tokens: Real = None
    """Tokens of the whole training, such as 15e12: also print its time, device-hours and energy."""
    verify: Whole = 0
    """Price the best N again from their compiled programs."""
    plot: File = None
    """Write a picture of the plans' step times, by term (.png or .svg)."""
    json: Switch = False
    """Print one JSON document."""

    def execute(self) -> int:
        """Print the plans; that nothing fits is an answer, not an error."""
        from scaling.api.output_paths import check_outputs
        from scaling.pictures.plots import check_picture

        check_outputs({"--plot": self.plot})
        check_picture("--plot", self.plot)
        result = sc.plan(
            self.run,
            self.cluster,
            self.nodes,
            self.mesh,
            set=self.set,
            device_order=self.device_order,
            overrides=self.override,
            calibration=self.calibration,
            top=self.top,
            objective=self.objective,
            tokens=self.tokens,
            verify=self.verify,
        )
        if self.plot is not None:
            result.plot(self.plot)
        print(json.dumps(result.to_dict(), allow_nan=False) if self.json else result)
        return 0
