"""`scaling calibrate`: measure this machine and keep the result."""

from dataclasses import dataclass

import scaling as sc
from scaling.cli.options import Command, File, Number, Switch


@dataclass(frozen=True)
class CalibrateCommand(Command):
    """Measure this machine: matmul, attention, memory, each collective on each axis.

    Example: scaling calibrate --quick --devices 8
    """

    out: File = None
    """File to write (default: in ~/.cache/scaling/calibrations)."""
    quick: Switch = False
    """Fewer sizes, under a minute."""
    devices: Number = None
    """Number of fake host devices, where no accelerator is present (default: 8)."""

    @property
    def subject(self) -> str:
        """The machine has no name."""
        return ""

    def execute(self) -> int:
        """Measure, write the file, print how well the fits hold."""
        from scaling.profiles.calibrations import calibration_path
        from scaling.report.calibration import table

        profile = sc.calibrate(self.out, self.quick, self.devices)
        print(table(profile))
        print(f"calibration: {self.out or calibration_path(profile.machine)}")
        print("next: scaling predict demo --cluster host, or train: predictions now use it")
        return 0
