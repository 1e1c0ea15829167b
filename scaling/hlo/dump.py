"""What XLA writes with XLA_FLAGS=--xla_dump_to=DIR, as far as a price needs it.

    module_0042.jit_step.before_optimizations.txt                           names the mesh's axes
    module_0042.jit_step.sm_9.0a_gpu_after_optimizations.txt                the program
    module_0042.jit_step.sm_9.0a_gpu_after_optimizations-memory-usage-report.txt   planned memory
    module_0042.jit_step.config.pbtxt                                       device of each partition

A folder has them for every module that was compiled; the largest program is taken for the step.
"""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

from scaling.hlo.kept import KEPT_CHIP, kept_texts
from scaling.meshes.accelerator import Accelerator
from scaling.meshes.errors import InputError, is_count
from scaling.meshes.reading import read_text

COMPILED, LOWERED = "after_optimizations.txt", "before_optimizations.txt"
CONFIG = "config.pbtxt"
# `computation_devices { replica_device_ids: 8 }`, once per partition (xla_data.proto and
# hlo_module_config.proto, DeviceAssignmentProto)
PARTITION = re.compile(r"computation_devices \{([^}]*)\}")
DEVICE = re.compile(r"\breplica_device_ids: (\d{1,9})\b")
REPORT = "-memory-usage-report.txt"
TOTAL = re.compile(r"^Total bytes(?: used)?: (\d{1,18})\b", re.MULTILINE)  # used: jax 0.5
PREFIX = re.compile(r"^(module_\d+\..*?)\.(?:(sm_[\w.]+?|gfx\w+)_)?(gpu|cpu|tpu)_after_opt")
# `#sdy.mesh<["data"=4, "model"=2]>` (Shardy's notation, in the first line), and of jax 0.12
# `sharding={mesh['data'=4,'model'=2], ...` of arguments; devices in the order of their ids
MESH = re.compile(r"#sdy\.mesh<\[([^\]]*)\]>|\bsharding=\{mesh\[([^\]]*)\],")
AXIS = re.compile(r"""["']([^"']+)["']=(\d{1,9})\b""")
HEADER = 4_000_000  # characters that are read: shapes of all arguments, and the arguments
SHOWN = 3  # other programs of a folder that are named
HOW = "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text' writes it when a step is compiled"


@dataclass(frozen=True)
class Dump:
    """A compiled module, and what the files beside it tell."""

    text: str
    title: str
    devices: int
    axes: dict[str, int] | None = None  # of the mesh, outermost first; None: not known
    peak: int | None = None  # bytes on one device, as planned
    notes: tuple[str, ...] = ()
    order: tuple[int, ...] = ()  # number of the device of each partition; (): 0, 1, ...
    chip: str = ""  # that it was compiled for, where that is known

    @property
    def name(self) -> str:
        """`module_0042.jit_step` of a file that XLA named, else the title."""
        named = PREFIX.match(self.title)
        return named[1] if named else self.title

    def other_target(self, chip: Accelerator) -> tuple[str, ...]:
        """A warning where XLA is known to have compiled for another kind of chip."""
        named = PREFIX.match(self.title)
        vendors = {"AMD": "gfx", "Google": "tpu", "NVIDIA": f"sm_{chip.compute_capability}"}
        target, own = (named[2] or named[3]) if named else "gpu", vendors.get(chip.vendor, "cpu")
        if self.chip:
            target, own = self.chip, chip.name
        if target == "gpu" or target.startswith(own):
            return ()
        return (f"{self.title} was compiled for {target}: {chip.title} would run other kernels",)


def dump_of(text: str) -> Dump:
    """The dump in a text of one module, titled `hlo`.

    Raises:
        InputError: no HLO, of another stage, cut off, or of several modules.
    """
    return Dump(text, "hlo", partitions(text, "hlo"))


def read_dump(path: Path) -> Dump:
    """The dump in a file, or the largest of a folder; or one that comes with the package.

    Raises:
        InputError: as `dump_of`; a folder without a compiled module.
    """
    name = str(path)
    if name in kept_texts() and not path.exists():
        return replace(dump_of(kept_texts()[name]), title=name, chip=KEPT_CHIP)
    if not path.exists():
        kept = ", ".join(sorted(kept_texts()))
        raise InputError(f"cannot read {name}: no such file; with the package come {kept}")
    notes: tuple[str, ...] = ()
    if path.is_dir():
        path, notes = _largest(path)
    text = read_text(path)
    title = path.stem
    try:
        devices = partitions(text, title)
    except InputError as error:
        start = ".".join(path.name.split(".")[:2])
        found = sorted(path.parent.glob(f"{start}.*{COMPILED}")) if "." in path.name else []
        beside = f"; it is beside it: {found[0].name}" if found and found[0] != path else ""
        raise InputError(f"{error}{beside}") from None
    axes = _axes(path)
    known = axes if axes and math.prod(axes.values()) == devices else None
    return Dump(text, title, devices, known, _peak(path), notes, _order(path, devices))


def partitions(text: str, title: str) -> int:
    """The number of devices of an HLO module, from its first line."""
    start = text.lstrip()
    first = start.partition("\n")[0]
    if not first.startswith("HloModule"):
        raise InputError(f"{title} is no HLO text: {_what(start)}")
    if "is_scheduled=true" not in first:
        raise InputError(
            f"{title} is not scheduled, so it is from before or in the middle of XLA's "
            f"optimizations: take the dump *{COMPILED} (is_scheduled=true)"
        )
    modules = len(re.findall(r"^HloModule ", text, re.MULTILINE))
    if modules > 1:
        raise InputError(f"{title} holds {modules} modules: give the one of the step, in a file")
    last = text.rstrip().rpartition("\n")[2]
    if last.startswith("}") and not re.search(r"^ENTRY ", text, re.MULTILINE):
        raise InputError(f"{title} is cut off: the computation that begins with ENTRY is missing")
    if "\n" in start and not last.startswith("}"):
        raise InputError(f"{title} is cut off: its last line is {last.strip()[:80]!r}, not '}}'")
    counts = re.findall(r"\b(?:num_partitions|replica_count)=(\d+)", first)
    if not all(map(is_count, counts)):
        raise InputError(f"{title} names a number of devices of {max(map(len, counts)):,} digits")
    if not (devices := math.prod(map(int, counts))):
        raise InputError(f"{title} is a program of no devices: its first line says 0")
    return devices


def _what(start: str) -> str:
    """What a text is that is no HLO."""
    if not start:
        return "it is empty"
    if re.match(r"(?:#loc|module )", start) and "func.func" in start:
        return "it is StableHLO, of a step that is lowered only: take .compile().as_text()"
    return f"its first line does not begin with HloModule ({start[:40]!r})"


def _largest(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The largest compiled module of a folder, and a note on the others."""
    try:
        sizes = {path: path.stat().st_size for path in folder.glob(f"*{COMPILED}")}
        stages = sorted({p.name.split(".", 2)[-1] for p in folder.glob("*.txt")})
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}") from None
    if not sizes:
        has = f", only {', '.join(stages[:SHOWN])}" if stages else ""
        if below := next(folder.glob(f"*/*{COMPILED}"), None):
            raise InputError(f"{folder} has no *{COMPILED}, {below.parent} has: give that folder")
        raise InputError(f"{folder} has no *{COMPILED}{has}: {HOW}")
    step, *others = sorted(sizes, key=lambda path: (-sizes[path], path.name))
    if not others:
        return step, ()
    named = ", ".join(f"{path.name} ({sizes[path]:,} bytes)" for path in others[:SHOWN])
    more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
    return step, (
        f"{step.name} ({sizes[step]:,} bytes) is taken for the step, the largest of "
        f"{len(sizes)} modules; the others: {named}{more}",
    )


def _axes(path: Path) -> dict[str, int] | None:
    """Axes of the mesh, which the module before optimizations names, if it lies beside."""
    prefix = PREFIX.match(path.name)
    if prefix is None:
        return None
    try:
        with path.with_name(f"{prefix[1]}.{LOWERED}").open(encoding="utf-8") as file:
            found = MESH.findall(file.read(HEADER))
    except (OSError, ValueError):
        return None
    meshes = {tuple(AXIS.findall("".join(mesh))) for mesh in found}
    return {axis: int(size) for axis, size in meshes.pop()} if len(meshes) == 1 else None


def _order(path: Path, devices: int) -> tuple[int, ...]:
    """The device of each partition, by its rank; () where no file beside the program says it.

    With several replicas, device numbers count partitions first, as in groups of global ids.
    """
    prefix = PREFIX.match(path.name)
    if prefix is None:
        return ()
    try:
        found = PARTITION.findall(read_text(path.with_name(f"{prefix[1]}.{CONFIG}")))
    except InputError:
        return ()
    replicas = [[int(number) for number in DEVICE.findall(each)] for each in found]
    ids = [number for row in zip(*replicas, strict=False) for number in row]
    rank = {number: i for i, number in enumerate(sorted(set(ids)))}
    order = tuple(rank[number] for number in ids)
    return order if len(rank) == len(ids) == devices else ()


def _peak(path: Path) -> int | None:
    """Bytes of all allocations, from the report that lies beside."""
    report = path.with_name(f"{path.stem}{REPORT}")
    try:
        found = TOTAL.findall(read_text(report))
    except InputError:
        return None
    return int(found[0]) if found else None
