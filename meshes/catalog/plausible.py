"""Link speeds that can be right, by kind, so that bits for bytes or GB/s for bytes/s stand out.

    slowest that was ever sold <= bandwidth of one physical link, one direction <= fastest on sale

A figure outside is reported with what it looks like: bits (eight times too much), GB/s (1e9 times
too little), bytes taken for bits (eight times too little), or all links of a link together.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scaling.meshes.units import format_rate

BITS_PER_BYTE = 8
SPOKEN_WITH_A_VOWEL = ("nvlink", "xgmi", "ici")
SLOWEST_LINK = 1e6  # bytes/s, 8 Mb/s; less is not a link of a cluster but a figure in GB/s
LONGEST_LATENCY = 1e-3  # s; more looks like microseconds


@dataclass(frozen=True)
class Range:
    """Plausible bandwidths of one physical link, one direction, bytes/s."""

    low: float
    high: float
    source: str  # what the two ends are

    @property
    def text(self) -> str:
        return f"{format_rate(self.low)} to {format_rate(self.high)} ({self.source})"


# Every end is that of a public specification of the product named.
RANGES = {
    "nvlink": Range(
        14e9, 100e9, "RTX 3090 bridge, NVIDIA GA102 whitepaper; twice NVLink 5, GB200 datasheet"
    ),
    "xgmi": Range(
        23e9, 128e9, "MI50, AMD Vega 20 whitepaper; twice MI300X, AMD CDNA 3 whitepaper"
    ),
    "ici": Range(
        45e9, 200e9, "TPU v5e, scaling book; twice TPU v5p, Google Cloud documentation"
    ),
    "c2c": Range(36e9, 450e9, "MI250X to CPU, Frontier User Guide; GH200, NVIDIA datasheet"),
    "pcie": Range(0.9e9, 121e9, "one lane of PCIe 3.0; 16 lanes of PCIe 6.0, PCI-SIG"),
    "upi": Range(12e9, 128e9, "QPI of 6.4 GT/s, Intel; twice xGMI of 32 GT/s, AMD EPYC 9004"),
    "memory": Range(12e9, 2e12, "a channel of DDR3-1600, JEDEC; beyond any socket of 2026"),
    "network": Range(
        12.5e6, 100e9, "100 Mb/s Ethernet, IEEE 802.3u; 800 Gb/s, NVIDIA ConnectX-8 datasheet"
    ),
}  # fmt: skip


def doubtful_bandwidth(label: str, kind: str, value: float, count: int) -> Iterator[str]:
    """A warning if `value`, bytes/s of one of `count` links of a link, is outside the range."""
    known = RANGES.get(kind)
    if known is None or value <= 0 or known.low <= value <= known.high:
        return
    shown = format_rate(value) if value >= SLOWEST_LINK else f"{value:g} bytes/s"
    yield (
        f"warning: {label}: {shown} per link looks like {_meant(known, value, count)}; "
        f"{'an' if kind in SPOKEN_WITH_A_VOWEL else 'a'} {kind} link has {known.text}"
    )


def doubtful_latency(label: str, value: float) -> Iterator[str]:
    """A warning if `value`, seconds, looks like another unit."""
    if value > LONGEST_LATENCY:
        yield f"warning: {label}: {value:g} s looks like microseconds; write {value:g}e-6"


def _meant(known: Range, value: float, count: int) -> str:
    """What was probably meant, and what to write instead."""
    if value < SLOWEST_LINK:
        return f"GB/s; write {value:g}e9"
    if value < known.low:
        return f"bits taken for bytes once too often; write {value * BITS_PER_BYTE:g} if so"
    if count > 1 and known.low <= value / count <= known.high:
        return f"all {count} links together; write {value / count:g}"
    return f"bits; write {value / BITS_PER_BYTE:g}"
