"""What one chip can do: peaks, memory, the intensity at which its memory stops binding.

And the constants by which it is priced (`scaling.questions.constants`).
"""

from collections.abc import Mapping
from math import log2

from scaling.meshes.accelerator import Accelerator, peak_name
from scaling.meshes.errors import InputError
from scaling.meshes.formula import symbols
from scaling.questions.answer import Answer, Input, by_formula, letters
from scaling.questions.constants import constants

SECTION, TPU_SECTION = "gpus: quiz 1", "tpus: what is a TPU"
FIGURES = {  # figure -> (unit, what it is)
    "memory": ("bytes", "memory on the board"),
    "usable_memory": ("bytes", "what a framework can allocate"),
    "memory_bandwidth": ("bytes/s", "memory bandwidth"),
    "cores": ("cores", "streaming multiprocessors, or cores"),
    "fpus_per_core": ("lanes", "fp32 lanes of a core"),
    "matrix_units_per_core": ("units", "tensor cores or MXUs of a core"),
    "matrix_unit_size": ("rows", "and columns of multipliers of a matrix unit"),
    "clock": ("Hz", "boost clock"),
    "base_clock": ("Hz", "base clock"),
    "l2_cache": ("bytes", "level-2 cache"),
    "registers_per_core": ("registers", "32-bit registers of a core"),
    "threads_per_core": ("threads", "threads of a core at once"),
    "shared_memory_per_core": ("bytes", "shared memory of a core"),
    "chip_cores": ("cores", "cores of a TPU"),
    "vector_registers": ("bytes", "vector registers of a core of a TPU"),
    "power": ("W", "most that the board draws"),
}
# Parts that a chip has of which all figures are known: name, unit, formula.
NEAR_MEMORY = (
    ("registers of a core in bytes", "bytes", "R * b"),
    ("registers of all cores in bytes", "bytes", "cores * R * b"),
    ("shared memory of all cores", "bytes", "cores * S"),
)
LANES = ("fp32 lanes", "lanes", "cores * each")
PEAK_CLOCK = (
    "clock at which multiply-adds of all lanes give the fp32 peak",
    "Hz",
    "C32 / (2 * lanes)",
)
CYCLES = (
    ("FLOPs per cycle of a core", "FLOPs/cycle", "C / (cores * clock)"),
    ("FLOPs per cycle of a matrix unit", "FLOPs/cycle", "C / (cores * units * clock)"),
)
# Of a TPU: s x s multipliers, each a multiplication and an addition a cycle.
MATRIX_UNIT = (
    ("matrix units", "units", "n * units"),
    ("rate of a matrix unit", "FLOP/s", "2 * s ** 2 * clock"),
    ("rate of all matrix units", "FLOP/s", "n * units * 2 * s ** 2 * clock"),
)
THREADS = 32  # of a warp (NVIDIA, CUDA C++ Programming Guide, SIMT architecture)
TOTALS = ("memory", "memory_bandwidth", "chip_cores", "power")  # of several chips: added up


def chip(
    accelerator: Accelerator, dtype: str | None, devices: int = 1, registers: int | None = None
) -> Answer:
    """Return the intensity at which a chip becomes compute bound, its peaks and its figures.

    Args:
        dtype: of the peak that the intensity is of; None: the format that the chip is used in.
        devices: chips whose peaks, memory and power are added up, if more than one.
        registers: 32-bit registers of a thread, to ask how many warps fit a core.

    Raises:
        InputError: the chip does not multiply in that format, or has no warps.
    """
    dtype = dtype or accelerator.usual_format or "bf16"
    given = _letters(accelerator, dtype)
    peak_notes = lambda name: _source(accelerator, peak_name(name))
    parts = [
        Answer(f"peak {name}", rate, "FLOP/s", ideal=rate, notes=peak_notes(name))
        for name, rate in accelerator.peaks.items()
    ]
    for name, (unit, meaning) in FIGURES.items():
        value = getattr(accelerator, name)
        if value is not None:
            notes = (meaning, *_source(accelerator, name))
            parts.append(Answer(name.replace("_", " "), value, unit, ideal=value, notes=notes))
    parts += _answered(given, *NEAR_MEMORY)
    parts += [] if registers is None else [_warps(accelerator, registers, given)]
    parts += _vector(accelerator, given)
    parts += (cycles := _answered(given, *CYCLES))
    if len(cycles) == len(CYCLES):
        nearest = 2 ** round(log2(float(cycles[-1])))
        u = Input("u", nearest, "FLOPs/cycle", "the nearest power of two")
        name, formula = "clock of the matrix units", "C / (cores * units * u)"
        parts.append(by_formula(name, "Hz", formula, {**given, "u": u}))
    parts += _answered(given, *MATRIX_UNIT)
    parts += _totals(accelerator, given, devices) if devices > 1 else []
    parts += constants(accelerator)
    section = TPU_SECTION if accelerator.chip_cores else SECTION
    heading = f"FLOPs per byte at which {accelerator.title} is compute bound"
    if "W" not in given:
        why = "the catalogue has no memory bandwidth of it"
        return Answer(heading, None, "FLOPs/byte", binds=why, section=section, parts=tuple(parts))
    return by_formula(heading, "FLOPs/byte", "C / W", given, section=section, parts=tuple(parts))


def _letters(accelerator: Accelerator, dtype: str) -> dict[str, Input]:
    """Symbols of formulas about a chip, those of the figures that the catalogue has."""
    chip = accelerator
    rows = (
        ("C", chip.peak(dtype), "FLOP/s", f"dense {dtype} peak"),
        ("C32", chip.peaks.get("fp32"), "FLOP/s", "fp32 peak"),
        ("W", chip.memory_bandwidth, "bytes/s", "memory bandwidth"),
        ("cores", chip.cores, "cores", ""),
        ("each", chip.fpus_per_core, "lanes", "of a core"),
        ("units", chip.matrix_units_per_core, "units", "of a core"),
        ("clock", chip.clock, "Hz", "boost"),
        ("n", chip.chip_cores, "cores", "of the chip"),
        ("s", chip.matrix_unit_size, "rows", "and columns of a matrix unit"),
        ("R", chip.registers_per_core, "registers", "of a core"),
        ("b", 4, "bytes", "a register of 32 bits"),
        ("S", chip.shared_memory_per_core, "bytes", "of a core"),
        ("T", chip.threads_per_core, "threads", "of a core at once"),
    )
    return letters(*(Input(s, value, *words) for s, value, *words in rows if value is not None))


def _warps(accelerator: Accelerator, registers: int, given: Mapping[str, Input]) -> Answer:
    """Warps of a core at once, by its registers and by its threads."""
    held, threads = accelerator.registers_per_core, accelerator.threads_per_core
    if accelerator.vendor != "NVIDIA" or held is None or threads is None:
        raise InputError(f"--registers: {accelerator.name} has no warps of {THREADS} threads")
    if not 1 <= registers <= held // THREADS:
        raise InputError(
            f"--registers {registers}: a thread has 1 to {held // THREADS:,}, of which a warp of "
            f"{THREADS} fills a core's {held:,}"
        )
    r = Input("r", registers, "registers", "of a thread")
    w = Input("w", THREADS, "threads", "of a warp")
    by_threads = threads // THREADS <= held // (registers * THREADS)
    binds = "threads" if by_threads else "registers"
    formula = "min(floor(R / (r * w)), floor(T / w))"
    return by_formula("warps of a core", "warps", formula, {**given, **letters(r, w)}, binds=binds)


def _answered(given: Mapping[str, Input], *asked: tuple[str, str, str]) -> list[Answer]:
    """Those of (name, unit, formula) whose symbols all have a number."""
    return [by_formula(*each, given) for each in asked if {*symbols(each[2])} <= {*given}]


def _vector(accelerator: Accelerator, given: Mapping[str, Input]) -> list[Answer]:
    """Lanes of all cores, and their rate at one operation per lane and cycle."""
    answers = _answered(given, LANES)
    if (count := accelerator.vector_lanes) is not None:
        notes = _source(accelerator, "vector_lanes")
        answers = [Answer(LANES[0], count, "lanes", ideal=count, notes=notes)]
    if not answers:
        return []
    lanes, peak = Input("lanes", int(float(answers[0])), "lanes", "fp32, of all cores"), given["C"]
    given = {**given, "lanes": lanes}
    for where, clock in (("", accelerator.clock), (" at base clock", accelerator.base_clock)):
        if clock is None:
            continue
        given["clock"] = Input("clock", clock, "Hz", "base" if where else "boost")
        name = f"vector rate{where}"
        note = "one operation per lane and cycle; a fused multiply-add counts as two in a peak"
        rate = by_formula(name, "FLOP/s", "lanes * clock", given, notes=(note,))
        given["V"] = Input("V", float(rate), "FLOP/s", name)
        over = (f"{peak.meaning} over {name}", "", "C / V")
        answers += [rate, *_answered(given, over, (f"{name} of a core", "FLOP/s", "V / n"))]
    return answers + _answered(given, PEAK_CLOCK)


def _totals(accelerator: Accelerator, given: Mapping[str, Input], devices: int) -> list[Answer]:
    several = f"of {devices:,} devices"
    given = {**given, "N": Input("N", devices, "devices")}
    answers = [by_formula(f"{given['C'].meaning} {several}", "FLOP/s", "N * C", given)]
    for figure in TOTALS:
        value, words = getattr(accelerator, figure), figure.replace("_", " ")
        if value is not None:
            given["one"] = Input("one", value, FIGURES[figure][0], "of a chip")
            answers.append(by_formula(f"{words} {several}", given["one"].unit, "N * one", given))
    return answers


def _source(accelerator: Accelerator, figure: str) -> tuple[str, ...]:
    given = accelerator.figures.get(figure)
    return (given.source,) if given else ()
