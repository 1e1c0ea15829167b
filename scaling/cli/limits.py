"""`scaling limits`: how far each axis of a mesh can be cut."""

from dataclasses import dataclass

import scaling as sc
from scaling.cli.options import File, KeyValues, Number, QuestionCommand, RunCommand, Text
from scaling.questions.answer import Answer


@dataclass(frozen=True)
class LimitsCommand(QuestionCommand, RunCommand):
    """Print the batch from which communication is hidden, and the limits of every mesh axis.

    Example: scaling limits llama3-70b --cluster dgx-h100 --nodes 128
    """

    mesh: Text = None
    """Axis sizes such as data=64,tensor=8, whose limits are asked (default: the run's, else all
    places on the cluster)."""
    cluster: Text = None
    """Catalogue name or TOML file (default: the run's)."""
    nodes: Number = None
    """Number of hosts (default: the run's, else 1)."""
    override: KeyValues = ()
    """A figure of the cluster, such as node_network_bandwidth=3200Gb/s (all NICs of a node)."""
    calibration: File = None
    """File of scaling calibrate to price with."""

    def ask(self) -> Answer:
        """Return the answer."""
        return sc.limits(
            self.run,
            self.cluster,
            self.nodes,
            self.mesh,
            set=self.set,
            device_order=self.device_order,
            overrides=self.override,
            calibration=self.calibration,
        )
