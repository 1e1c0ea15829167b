"""`scaling calibrate`: measure this machine and keep the result."""

from dataclasses import dataclass

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
        from scaling.api.calibrate import calibrate_to_file
        from scaling.report.calibration import table

        path, profile = calibrate_to_file(self.out, self.quick, self.devices)
        print(table(profile))
        print(f"calibration: {path}")
        print("next: scaling predict demo --cluster host, or train: predictions now use it")
        return 0
