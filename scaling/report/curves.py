"""Strong and weak scaling as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from scaling.meshes.units import format_time, percent, three_digits
from scaling.pictures.curves import efficiency
from scaling.report.formatting import columns

HEAD = ("devices", "mesh", "sequences", "step", "from", "to", "tokens/s", "MFU", "efficiency")


def curves_table(curves: Mapping[str, Sequence[Any]]) -> str:
    """Name -> predictions by number of devices, each curve with its table."""
    return "\n".join(line for name, found in curves.items() for line in _lines(name, found))


def _lines(name: str, predictions: Sequence[Any]) -> list[str]:
    rows = [
        (
            f"{p.devices:,}",
            p.mesh,
            f"{p.pricing.run.batch.global_batch:,}",
            *map(format_time, (p.step_time, p.step_time_low, p.step_time_high)),
            three_digits(p.tokens_per_second),
            percent(p.mfu),
            percent(share),
        )
        for p, share in zip(predictions, efficiency(predictions), strict=True)
    ]
    return [f"{name} scaling", *(f"  {line}" for line in columns([HEAD, *rows], left=(1,)))]
