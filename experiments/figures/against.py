"""Points for a picture of predicted against measured numbers, named with their median error."""

from collections.abc import Iterable
from statistics import median

from scaling.pictures.curves import ScatterPoint


def points(
    name: str, pairs: Iterable[tuple[float, float]], ranges: Iterable[tuple[float, float]] = ()
) -> list[ScatterPoint]:
    """Points of one kind.

    Args:
        name: of the kind; its median error is put behind it.
        pairs: measured and predicted.
        ranges: low and high of the predictions, for every pair or for none.
    """
    pairs, ends = list(pairs), list(ranges)
    off = median(abs(predicted / measured - 1) for measured, predicted in pairs)
    group = f"{name}: {off:.1%} off"
    if not ends:
        return [ScatterPoint(group, float(m), float(p)) for m, p in pairs]
    both = zip(pairs, ends, strict=True)
    return [ScatterPoint(group, float(m), float(p), *end) for (m, p), end in both]
