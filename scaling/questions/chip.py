"""What one chip can do: peaks, memory, the intensity at which its memory stops binding."""

from math import log2

from scaling.meshes.accelerator import Accelerator, peak_name
from scaling.meshes.errors import InputError
from scaling.questions.answer import Answer, Input, by_formula

SECTION = "gpus: quiz 1"
FIGURES = {  # figure -> (unit, what it is)
    "memory": ("bytes", "memory on the board"),
    "usable_memory": ("bytes", "what a framework can allocate"),
    "memory_bandwidth": ("bytes/s", "memory bandwidth"),
    "cores": ("cores", "streaming multiprocessors, or cores"),
    "fpus_per_core": ("lanes", "fp32 lanes of a core"),
    "matrix_units_per_core": ("units", "tensor cores of a core"),
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
WORD = Input("b", 4, "bytes", "a register of 32 bits")
THREADS = 32  # of a warp (NVIDIA, CUDA C++ Programming Guide, SIMT architecture)
TOTALS = ("memory", "memory_bandwidth", "chip_cores", "power")  # of several chips: added up


def chip(
    accelerator: Accelerator, dtype: str | None, devices: int = 1, registers: int | None = None
) -> Answer:
    """Return the intensity at which a chip becomes compute bound, its peaks and its figures.

    Args:
        accelerator: the chip.
        dtype: of the peak that the intensity is of; None: the format that the chip is used in.
        devices: chips whose peaks, memory and power are added up, if more than one.
        registers: 32-bit registers of a thread, to ask how many warps fit a core.

    Raises:
        InputError: the chip does not multiply in that format, or has no warps.
    """
    dtype = dtype or accelerator.usual_format or "bf16"
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
    parts += _near_memory(accelerator)
    parts += [] if registers is None else [_warps(accelerator, registers)]
    parts += _vector(accelerator, C)
    parts += _cycles(accelerator, C)
    parts += _totals(accelerator, C, devices) if devices > 1 else []
    heading = f"FLOPs per byte at which {accelerator.title} is compute bound"
    if accelerator.memory_bandwidth is None:
        why = "the catalogue has no memory bandwidth of it"
        return Answer(heading, None, "FLOPs/byte", binds=why, section=SECTION, parts=tuple(parts))
    W = Input("W", accelerator.memory_bandwidth, "bytes/s", "memory bandwidth")
    return by_formula(heading, "FLOPs/byte", "C / W", (C, W), section=SECTION, parts=tuple(parts))


def _near_memory(accelerator: Accelerator) -> list[Answer]:
    """Bytes of registers of a core, and of registers and shared memory of all cores."""
    found = []
    held, shared = accelerator.registers_per_core, accelerator.shared_memory_per_core
    cores = accelerator.cores
    all_cores = () if cores is None else (Input("cores", cores, "cores"),)
    if held is not None:
        inputs = (Input("R", held, "registers", "of a core"), WORD)
        found.append(by_formula("registers of a core in bytes", "bytes", "R * b", inputs))
        if all_cores:
            name, formula = "registers of all cores in bytes", "cores * R * b"
            found.append(by_formula(name, "bytes", formula, (*all_cores, *inputs)))
    if shared is not None and all_cores:
        inputs = (*all_cores, Input("S", shared, "bytes", "of a core"))
        found.append(by_formula("shared memory of all cores", "bytes", "cores * S", inputs))
    return found


def _warps(accelerator: Accelerator, registers: int) -> Answer:
    """Warps of a core at once, by its registers and by its threads."""
    held, threads = accelerator.registers_per_core, accelerator.threads_per_core
    if accelerator.vendor != "NVIDIA" or held is None or threads is None:
        raise InputError(f"--registers: {accelerator.name} has no warps of {THREADS} threads")
    if not 1 <= registers <= held // THREADS:
        raise InputError(
            f"--registers {registers}: a thread has 1 to {held // THREADS:,}, of which a warp of "
            f"{THREADS} fills a core's {held:,}"
        )
    inputs = (
        Input("R", held, "registers", "of a core"),
        Input("r", registers, "registers", "of a thread"),
        Input("w", THREADS, "threads", "of a warp"),
        Input("T", threads, "threads", "of a core at once"),
    )
    by_threads = threads // THREADS <= held // (registers * THREADS)
    binds = "threads" if by_threads else "registers"
    formula = "min(floor(R / (r * w)), floor(T / w))"
    return by_formula("warps of a core", "warps", formula, inputs, binds=binds)


def _vector(accelerator: Accelerator, C: Input) -> list[Answer]:
    """Lanes of all cores, and their rate at one operation per lane and cycle."""
    lanes, found = _lanes(accelerator)
    if lanes is None:
        return []
    for name, clock in (("", accelerator.clock), (" at base clock", accelerator.base_clock)):
        if clock is not None:
            inputs = (lanes, Input("clock", clock, "Hz", "base" if name else "boost"))
            note = "one operation per lane and cycle; a fused multiply-add counts as two in a peak"
            rate = by_formula(
                f"vector rate{name}", "FLOP/s", "lanes * clock", inputs, notes=(note,)
            )
            found.append(rate)
            V = Input("V", float(rate), "FLOP/s", rate.name)
            found.append(by_formula(f"{C.meaning} over {rate.name}", "", "C / V", (C, V)))
            if accelerator.chip_cores is not None:
                n = Input("n", accelerator.chip_cores, "cores", "of the chip")
                found.append(by_formula(f"{rate.name} of a core", "FLOP/s", "V / n", (V, n)))
    if "fp32" in accelerator.peaks:
        peak = Input("C32", accelerator.peaks["fp32"], "FLOP/s", "fp32 peak")
        name = "clock at which multiply-adds of all lanes give the fp32 peak"
        found.append(by_formula(name, "Hz", "C32 / (2 * lanes)", (peak, lanes)))
    return found


def _lanes(accelerator: Accelerator) -> tuple[Input | None, list[Answer]]:
    """All fp32 lanes of a chip, as an input and as an answer."""
    meaning = "fp32, of all cores"
    if accelerator.vector_lanes is not None:
        count = accelerator.vector_lanes
        notes = _source(accelerator, "vector_lanes")
        answer = Answer("fp32 lanes", count, "lanes", ideal=count, notes=notes)
        return Input("lanes", count, "lanes", meaning), [answer]
    if accelerator.cores is None or accelerator.fpus_per_core is None:
        return None, []
    cores = Input("cores", accelerator.cores, "cores")
    each = Input("each", accelerator.fpus_per_core, "lanes", "of a core")
    answer = by_formula("fp32 lanes", "lanes", "cores * each", (cores, each))
    return Input("lanes", int(float(answer)), "lanes", meaning), [answer]


def _cycles(accelerator: Accelerator, C: Input) -> list[Answer]:
    """FLOPs of a cycle, and the clock of matrix units: theirs are a power of two."""
    if accelerator.cores is None or accelerator.clock is None:
        return []
    cores = Input("cores", accelerator.cores, "cores")
    clock = Input("clock", accelerator.clock, "Hz", "boost")
    unit, formula = "FLOPs/cycle", "C / (cores * clock)"
    found = [by_formula("FLOPs per cycle of a core", unit, formula, (C, cores, clock))]
    if accelerator.matrix_units_per_core is not None:
        units = Input("units", accelerator.matrix_units_per_core, "units", "of a core")
        name, formula = "FLOPs per cycle of a matrix unit", "C / (cores * units * clock)"
        each = by_formula(name, unit, formula, (C, cores, units, clock))
        whole = Input("u", 2 ** round(log2(float(each))), unit, "the nearest power of two")
        name, formula = "clock of the matrix units", "C / (cores * units * u)"
        found += [each, by_formula(name, "Hz", formula, (C, cores, units, whole))]
    return found


def _totals(accelerator: Accelerator, C: Input, devices: int) -> list[Answer]:
    """Peak, memory, bandwidth and power of several chips."""
    N = Input("N", devices, "devices")
    found = [by_formula(f"{C.meaning} of {devices:,} devices", "FLOP/s", "N * C", (N, C))]
    for figure in TOTALS:
        value, words = getattr(accelerator, figure), figure.replace("_", " ")
        if value is not None:
            one = Input("one", value, FIGURES[figure][0], "of a chip")
            name = f"{words} of {devices:,} devices"
            found.append(by_formula(name, one.unit, "N * one", (N, one)))
    return found


def _source(accelerator: Accelerator, figure: str) -> tuple[str, ...]:
    given = accelerator.figures.get(figure)
    return (given.source,) if given else ()
