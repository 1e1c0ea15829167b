"""Charts of numbers over numbers, which were predicted or measured.

curves          how quantities grow and where they cross
sweep           measured times over sizes, and the line alpha + V / W beside them
bandwidth       of a collective over its size: predicted with range, the bound, what was measured
scatter         predicted over measured numbers, beside the line where both agree
scaling_curves  tokens/s and efficiency over the number of devices
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from scaling.meshes.units import format_rate, format_size, format_time, three_digits
from scaling.pictures.axes import Frame, Scale, log_scale
from scaling.pictures.chart import Series, chart
from scaling.pictures.legend import LOOKS, Look
from scaling.pictures.palette import BLUE, COLOURS, GREY, SKY, VERMILION
from scaling.pictures.shapes import INK, Picture, Point, beside
from scaling.simulate.collective import CollectivePrice
from scaling.simulate.prediction import Prediction

DASHES = ("", "6 4")  # of lines with the same colour: the rule, the fit
STEPS = 40  # points of a curve
SPACE = 1.6  # factor of free space around measured points
CROWD = 60  # points of a group from which on they are drawn faintly
NEAR = 1.2  # the dashed lines of a scatter: 20 % above and below
PANEL = 420.0  # pixels, the width of a panel
SCALING = {"strong": Look(BLUE, "o", ""), "weak": Look(VERMILION, "^", "")}


def curves(
    lines: Sequence[tuple[str, Sequence[Point], int, int]],
    marks: Sequence[tuple[str, float, float]],
    across: str,
    up: str,
    at: float | None = None,
) -> Picture:
    """Return lines in logarithmic axes.

    Args:
        lines: name, points, number of the colour and of the dashes of each.
        marks: name, x and y of points that are named.
        at: x of a vertical line, such as a slider's.
    """
    values = [y for _, points, _, _ in lines for _, y in points]
    xs = [x for _, points, _, _ in lines for x, _ in points]
    x = Scale(min(xs), max(xs), across, base=10)
    y = Scale(min(values) / 1.5, max(values) * 2, up, base=10)
    series = {
        name: Series(Look(COLOURS[colour], "", DASHES[dashes]), points)
        for name, points, colour, dashes in lines
    }
    if at is not None:
        series["_at"] = Series(Look(INK, "", "2 4"), [(at, y.low), (at, y.high)])
    named = [(a, b) for _, a, b in marks]
    series["_marks"] = Series(Look(INK, "o"), named, words=[name for name, _, _ in marks])
    return chart(up, Frame(x, y), series, marks)


def sweep(measured: Mapping[int, float], lines: Mapping[str, Callable[[float], float]]) -> Picture:
    """Return measured times over sizes, both logarithmic, with one curve for each line.

    Args:
        measured: bytes -> seconds.
        lines: seconds of bytes, by the names that stand in the legend.
    """
    x = log_scale(measured, "size", format_size, SPACE, base=2)
    low, high = min(measured.values()), max(measured.values())
    y = Scale(low / SPACE**3, high * SPACE, "time", format_time, base=10)
    looks = Look(BLUE, "", DASHES[0]), Look(SKY, "", DASHES[1])
    at = [x.low * (x.high / x.low) ** (i / STEPS) for i in range(STEPS + 1)]
    series = {
        name: Series(look, [(size, seconds_of(size)) for size in at])
        for (name, seconds_of), look in zip(lines.items(), looks, strict=False)
    }
    words = [f"{size:,} bytes: {1e3 * seconds:.4g} ms" for size, seconds in measured.items()]
    series["measured"] = Series(Look(VERMILION, "o"), list(measured.items()), words=words)
    return chart("time over size", Frame(x, y), series)


def bandwidth(
    answers: Sequence[CollectivePrice],
    title: str,
    measured: Mapping[str, Sequence[Point]] | None = None,
) -> Picture:
    """Return the bus bandwidth of a collective against its size, and the bound.

    It is bytes / time x the factor of nccl-tests, so that the rates of all kinds compare with a
    link's.

    `measured`: (bytes, bytes/s) of points to draw beside, by who measured them.
    """
    measured = measured or {}
    rate = lambda a, seconds: a.bus_bandwidth * a.time / seconds
    bound = [(a.bytes, rate(a, a.lower_bound)) for a in answers]
    series = {
        "predicted": Series(
            Look(BLUE, "", ""),
            [(a.bytes, a.bus_bandwidth) for a in answers],
            [(a.bytes, rate(a, a.time_high), rate(a, a.time_low)) for a in answers],
        ),
        "no latency, full bandwidth": Series(Look(INK, "", "6 4"), bound),
    }
    for (who, points), look in zip(measured.items(), LOOKS[1:], strict=False):
        series[who] = Series(replace(look, hollow=True), points)
    most = max(y for one in series.values() for _, *_, y in (*one.points, *one.band))
    sizes = [size for one in series.values() for size, _ in one.points]
    x = log_scale(sizes, "size", format_size, base=2)
    y = Scale(0, 1.05 * most, "bus bandwidth", format_rate)
    return chart(title, Frame(x, y), series)


@dataclass(frozen=True)
class ScatterPoint:
    """A number that was measured, and its prediction with its range; group: for the legend."""

    group: str
    measured: float
    predicted: float
    low: float | None = None
    high: float | None = None


def scatter(
    points: Sequence[ScatterPoint],
    title: str,
    words: tuple[str, str] = ("measured", "predicted, with its range"),
    show: Callable[[float], str] = format_time,
) -> Picture:
    """Return predicted over measured numbers."""
    ends = [t for p in points for t in (p.measured, p.low or p.predicted, p.high or p.predicted)]
    x = log_scale(ends, words[0], show)
    line = lambda factor: [(x.low, factor * x.low), (x.high, factor * x.high)]
    series = {
        "equal": Series(Look(INK, "", ""), line(1)),
        "20 % above and below": Series(Look(GREY, "", "6 4"), line(NEAR)),
        "_below": Series(Look(GREY, "", "6 4"), line(1 / NEAR)),
    }
    for number, group in enumerate(dict.fromkeys(point.group for point in points)):
        own = [point for point in points if point.group == group]
        series[f"{group} ({len(own)})"] = Series(
            replace(LOOKS[number % len(LOOKS)], opacity=0.6 if len(own) > CROWD else 1.0),
            [(p.measured, p.predicted) for p in own],
            ranges=[
                (p.measured, p.low, p.high) for p in own if p.low is not None and p.high is not None
            ],
        )
    return chart(title, Frame(x, replace(x, name=words[1]), high=388.0), series)


def efficiency(predictions: Sequence[Prediction]) -> list[float]:
    """Return tokens/s of a device over those of the first prediction, that on fewest devices."""
    rates = [float(p.tokens_per_second or 0.0) / p.devices for p in predictions]
    return [rate / rates[0] for rate in rates]


def scaling_curves(curves: Mapping[str, Sequence[Prediction]], title: str) -> Picture:
    """Return tokens per second, and the efficiency, over the number of devices.

    Args:
        curves: "strong" (the batch of a step stays) and "weak" (it grows with the devices) ->
            predictions by number of devices; one of them, or both.
    """
    counts = sorted({p.devices for predictions in curves.values() for p in predictions})
    devices = Scale(counts[0] / 1.2, counts[-1] * 1.2, "devices", "{:,}".format, 2, counts)
    rates: dict[str, Series] = {}
    shares: dict[str, Series] = {}
    for name, predictions in curves.items():
        look, words = SCALING[name], f"{name} scaling"
        tokens = [float(p.tokens_per_second or 0.0) * float(p.step_time) for p in predictions]
        at = [p.devices for p in predictions]
        mean, low, high = (
            [n / float(getattr(p, time)) for n, p in zip(tokens, predictions, strict=True)]
            for time in ("step_time", "step_time_high", "step_time_low")
        )
        over = lambda values, at=at: list(zip(at, values, strict=True))
        rates[words] = Series(look, over(mean), list(zip(at, low, high, strict=True)))
        ideal = over([mean[0] * n / at[0] for n in at])
        rates[f"{name}, ideal"] = Series(Look(look.colour, "", "2 4"), ideal)
        shares[words] = Series(look, over([100 * share for share in efficiency(predictions)]))
    shares["ideal"] = Series(Look(INK, "", "2 4"), [(devices.low, 100), (devices.high, 100)])
    ends = [y for one in rates.values() for _, *ys in (*one.points, *one.band) for y in ys]
    axis = log_scale(ends, "tokens/s", three_digits, 1.1)
    most = max(y for one in shares.values() for _, y in one.points)
    percent = Scale(0, 1.05 * most, "% of a device's rate on the fewest")
    panels = [
        chart("rate", Frame(devices, axis, PANEL), rates),
        chart("efficiency", Frame(devices, percent, PANEL), shares),
    ]
    return beside(title, panels, 2)
