"""Scaling curves: tokens per second, and per device, over the number of devices.

strong scaling  the batch of a step stays
weak scaling    it grows with the devices
efficiency      tokens/s of a device over those on the fewest devices
"""

from collections.abc import Mapping, Sequence

from scaling.meshes.units import three_digits
from scaling.pictures.axes import Scale, log_scale
from scaling.pictures.chart import Series, chart
from scaling.pictures.legend import Look
from scaling.pictures.palette import BLUE, VERMILION
from scaling.pictures.shapes import INK, Picture, beside
from scaling.simulate.prediction import Prediction

LOOKS = {"strong": Look(BLUE, "o", ""), "weak": Look(VERMILION, "^", "")}
PANEL = 420.0  # pixels, the width of a panel


def efficiency(predictions: Sequence[Prediction]) -> list[float]:
    """Tokens/s of a device over those of the first prediction."""
    rates = [float(p.tokens_per_second or 0.0) / p.devices for p in predictions]
    return [rate / rates[0] for rate in rates]


def scaling_curves(curves: Mapping[str, Sequence[Prediction]], title: str) -> Picture:
    """Return tokens per second, and the efficiency, over the number of devices.

    Args:
        curves: "strong" and "weak" -> predictions by number of devices; one of them, or both.
    """
    counts = sorted({p.devices for found in curves.values() for p in found})
    devices = Scale(counts[0] / 1.2, counts[-1] * 1.2, "devices", "{:,}".format, 2, counts)
    rates: dict[str, Series] = {}
    shares: dict[str, Series] = {}
    for name, found in curves.items():
        look, words = LOOKS[name], f"{name} scaling"
        ends = ("step_time", "step_time_high", "step_time_low")
        mean, low, high = ([_rate(p, end) for p in found] for end in ends)
        at = [p.devices for p in found]
        band = list(zip(at, low, high, strict=True))
        rates[words] = Series(look, list(zip(at, mean, strict=True)), band)
        ideal = [(n, mean[0] * n / at[0]) for n in at]
        rates[f"{name}, ideal"] = Series(Look(look.colour, "", "2 4"), ideal)
        percents = [100 * share for share in efficiency(found)]
        shares[words] = Series(look, list(zip(at, percents, strict=True)))
    shares["ideal"] = Series(Look(INK, "", "2 4"), [(devices.low, 100), (devices.high, 100)])
    tops = [rate for one in rates.values() for _, rate in one.points]
    tops += [rate for one in rates.values() for _, *both in one.band for rate in both]
    most = max(y for one in shares.values() for _, y in one.points)
    axis = log_scale(tops, "tokens/s", three_digits, 1.1)
    percent = Scale(0, 1.05 * most, "% of a device's rate on the fewest")
    panels = [
        chart("rate", devices, axis, rates, width=PANEL),
        chart("efficiency", devices, percent, shares, width=PANEL),
    ]
    return beside(title, panels, 2)


def _rate(prediction: Prediction, time: str) -> float:
    """Tokens/s where a step takes its time, the least or the most of its range."""
    seconds = float(getattr(prediction, time))
    return float(prediction.tokens_per_second or 0.0) * float(prediction.step_time) / seconds
