"""What one chip can do: peaks, memory, the intensity at which its memory stops binding."""

from scaling.meshes.accelerator import Accelerator, peak_name
from scaling.questions.answer import Answer, Input, by_formula

SECTION = "gpus: quiz 1"
FIGURES = {  # figure -> (unit, what it is)
    "memory": ("bytes", "memory on the board"),
    "usable_memory": ("bytes", "what a framework can allocate"),
    "memory_bandwidth": ("bytes/s", "memory bandwidth"),
    "cores": ("cores", "streaming multiprocessors, or cores"),
    "fpus_per_core": ("lanes", "fp32 lanes of a core"),
    "clock": ("Hz", "boost clock"),
    "l2_cache": ("bytes", "level-2 cache"),
    "registers_per_core": ("registers", "32-bit registers of a core"),
    "shared_memory_per_core": ("bytes", "shared memory of a core"),
    "power": ("W", "most that the board draws"),
}


def chip(accelerator: Accelerator, dtype: str) -> Answer:
    """Return the intensity at which a chip becomes compute bound, its peaks and its figures.

    Raises:
        InputError: the chip does not multiply in that format.
    """
    C = Input("C", accelerator.peak(dtype), "FLOP/s", f"dense {dtype} peak")
    parts = [
        Answer(f"peak {d}", rate, "FLOP/s", ideal=rate, notes=_source(accelerator, peak_name(d)))
        for d, rate in accelerator.peaks.items()
    ]
    for name, (unit, meaning) in FIGURES.items():
        value = getattr(accelerator, name)
        if value is not None:
            notes = (meaning, *_source(accelerator, name))
            parts.append(Answer(name.replace("_", " "), value, unit, ideal=value, notes=notes))
    parts += _vector(accelerator)
    heading = f"FLOPs per byte at which {accelerator.title} is compute bound"
    if accelerator.memory_bandwidth is None:
        why = "the catalogue has no memory bandwidth of it"
        return Answer(heading, None, "FLOPs/byte", binds=why, section=SECTION, parts=tuple(parts))
    W = Input("W", accelerator.memory_bandwidth, "bytes/s", "memory bandwidth")
    return by_formula(heading, "FLOPs/byte", "C / W", (C, W), section=SECTION, parts=tuple(parts))


def _vector(accelerator: Accelerator) -> list[Answer]:
    """Lanes of all cores, and their rate at one operation per lane and cycle."""
    if accelerator.cores is None or accelerator.fpus_per_core is None:
        return []
    cores = Input("cores", accelerator.cores, "cores")
    lanes = Input("lanes", accelerator.fpus_per_core, "lanes", "of a core")
    found = [by_formula("fp32 lanes", "lanes", "cores * lanes", (cores, lanes))]
    if accelerator.clock is not None:
        clock = Input("clock", accelerator.clock, "Hz", "boost")
        formula = "cores * lanes * clock"
        note = "one operation per lane and cycle; a fused multiply-add counts as two in a peak"
        inputs = (cores, lanes, clock)
        found.append(by_formula("vector rate", "FLOP/s", formula, inputs, notes=(note,)))
    return found


def _source(accelerator: Accelerator, figure: str) -> tuple[str, ...]:
    given = accelerator.figures.get(figure)
    return (given.source,) if given else ()
