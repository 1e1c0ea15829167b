"""Scaling curves: tokens per second, and per device, over the number of devices.

strong scaling  the batch of a step stays
weak scaling    it grows with the devices
efficiency      tokens/s of a device over those on the fewest devices
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scaling.meshes.units import three_digits
from scaling.pictures.palette import BLACK, BLUE, VERMILION
from scaling.pictures.plots.style import numbers_as, picture
from scaling.simulate.prediction import Prediction

LOOKS = {"strong": ("o", BLUE), "weak": ("^", VERMILION)}


def efficiency(predictions: Sequence[Prediction]) -> list[float]:
    """Tokens/s of a device over those of the first prediction."""
    rates = [float(p.tokens_per_second or 0.0) / p.devices for p in predictions]
    return [rate / rates[0] for rate in rates]


def plot_scaling(curves: Mapping[str, Sequence[Prediction]], title: str, path: Path) -> None:
    """Draw tokens per second, and the efficiency, over the number of devices.

    Args:
        curves: "strong" and "weak" -> predictions by number of devices; one of them, or both.
        title, path: see `plot_bandwidth`.

    Raises:
        InputError: see `plot_bandwidth`.
    """
    from matplotlib.ticker import LogLocator

    with picture(path, size=(9, 3.8), ncols=2) as (left, right):
        for name, predictions in curves.items():
            mark, colour = LOOKS[name]
            devices = [p.devices for p in predictions]
            rates = _rates(predictions, "step_time")
            least, most = (_rates(predictions, f"step_time_{end}") for end in ("high", "low"))
            left.fill_between(devices, least, most, color=colour, alpha=0.15, lw=0)
            left.plot(devices, rates, f"{mark}-", color=colour, label=f"{name} scaling")
            ideal = [rates[0] * n / devices[0] for n in devices]
            left.plot(devices, ideal, ":", color=colour, lw=1)
            shares = [100 * share for share in efficiency(predictions)]
            right.plot(devices, shares, f"{mark}-", color=colour, label=f"{name} scaling")
        right.axhline(100, linestyle=":", color=BLACK, lw=1, label="ideal")
        left.set(yscale="log", ylabel="tokens/s")
        right.set(ylabel="efficiency (%)")
        right.set_ylim(bottom=0)
        left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        numbers_as(left.yaxis, three_digits)
        for axes in (left, right):
            _number_devices(axes, sorted({p.devices for c in curves.values() for p in c}))
        right.legend(loc="lower left")
        left.figure.suptitle(title, fontsize=10)


def _rates(predictions: Sequence[Prediction], time: str) -> list[float]:
    """Tokens/s where a step takes its time, the least or the most of its range."""
    return [
        float(p.tokens_per_second or 0.0) * float(p.step_time) / float(getattr(p, time))
        for p in predictions
    ]


def _number_devices(axes: Any, counts: Sequence[int]) -> None:
    """Name the numbers of devices that occur below a logarithmic axis."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [f"{n:,}" for n in counts])
    axes.set_xlabel("devices")
    axes.minorticks_off()
    axes.grid()
