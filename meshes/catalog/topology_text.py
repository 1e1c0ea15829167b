"""The matrices that `nvidia-smi topo -m` and `-p2p` print, read strictly.

            GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity
    GPU0     X      NV12    PXB     0-31            0
    GPU1    NV12     X      SYS     32-63           1
    NIC0    PXB     SYS      X

An entry says how far apart two devices are, from NV# (NVLinks) over PIX, PXB (PCIe bridges), PHB,
NODE (inside a NUMA node) to SYS (between NUMA nodes). What is not understood is an error.

            GPU0    GPU1
    GPU0     X      CNS
    GPU1    CNS      X

Of `-p2p` an entry says whether two GPUs may read (r) or write (w) each other's memory, or have
NVLink between them (n). A line before it that holds `-p2p n` says so: the text itself does not.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from scaling.meshes.errors import InputError

# `nvidia-smi topo -m`, its own legend (driver 580, 2025)
SELF, BRIDGES, SAME_NODE, ACROSS = "X", ("PIX", "PXB"), ("PHB", "NODE"), "SYS"
ENTRIES = (SELF, *BRIDGES, *SAME_NODE, ACROSS)
AFFINITIES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
UNKNOWN = "N/A"
# `nvidia-smi topo -p2p`, its own legend (driver 580, 2025)
OK = "OK"
REFUSED = {
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by regkey",
    "U": "unknown",
}

MOST_NAMED = 6  # pairs in a sentence
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # nvidia-smi underlines its header
_HEADING = re.compile(rf"{'|'.join(AFFINITIES)}|\S+")
_GPU = re.compile(r"GPU[0-9]+")
_NIC = re.compile(r"[A-Za-z][\w.-]*[0-9]")  # NIC0, mlx5_0, mlx5_bond_0, bnxt_re1
_NVLINKS = re.compile(r"NV([0-9]+)")


@dataclass(frozen=True)
class Matrix:
    """Devices in the order of the text, the entry of every pair, and the affinities of the GPUs."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    entries: Mapping[tuple[str, str], str]  # both orders of every pair
    affinity: Mapping[str, str]  # GPU -> its NUMA node, else its CPUs; "": not known

    @property
    def devices(self) -> tuple[str, ...]:
        """GPUs, then NICs."""
        return self.gpus + self.nics

    def nvlinks(self, a: str, b: str) -> int:
        """NVLinks between two devices."""
        match = _NVLINKS.fullmatch(self.entries[a, b])
        return int(match.group(1)) if match else 0


@dataclass(frozen=True)
class Peers:
    """Which GPUs reach each other's memory."""

    gpus: tuple[str, ...]
    status: Mapping[tuple[str, str], str]  # OK, or why not; both orders of every pair

    @property
    def words(self) -> str:
        """`no pair of 10 GPUs has peer access: chipset not supported (CNS)`."""
        pairs = list(combinations(self.gpus, 2))
        states_of = {pair: {self.status[pair], self.status[pair[::-1]]} - {OK} for pair in pairs}
        refused = [pair for pair in pairs if states_of[pair]]
        states = dict.fromkeys(state for pair in refused for state in sorted(states_of[pair]))
        why = ", ".join(f"{REFUSED[state]} ({state})" for state in states)
        if not refused:
            return f"all {len(pairs)} pairs of {len(self.gpus)} GPUs have peer access"
        if len(refused) == len(pairs):
            return f"no pair of {len(self.gpus)} GPUs has peer access: {why}"
        named = ", ".join(f"{a}-{b}" for a, b in refused[:MOST_NAMED])
        more = ", ..." * (len(refused) > MOST_NAMED)
        return f"{len(refused)} of {len(pairs)} pairs have no peer access: {why}: {named}{more}"


def split_peers(text: str) -> tuple[str, Peers | None]:
    """Return the text without the matrices of `-p2p`, and who has peer access by them.

    Raises:
        InputError: a row or an entry is not understood, or matrices contradict each other.
    """
    lines = [_COLOUR.sub("", line) for line in text.splitlines()]
    kept, status, names, is_nvlink = list[str](), dict[tuple[str, str], str](), list[str](), False
    at = 0
    while at < len(lines):
        cells = lines[at].split()
        below = lines[at + 1].split()[1:] if at + 1 < len(lines) else []
        known = {SELF, OK, *REFUSED}
        if not (
            cells[:1] == ["GPU0"] and all(map(_GPU.fullmatch, cells)) and {*below} & known - {SELF}
        ):
            is_nvlink = "-p2p n" in lines[at] or (is_nvlink and not lines[at].strip())
            kept.append(lines[at])
            at += 1
            continue
        if names and names != cells:
            raise InputError(
                f"line {at + 1}: a matrix of {len(cells)} GPUs follows one of {len(names)}: paste "
                "those of one host"
            )
        for number in range(at + 1, at + 1 + len(cells)):
            row = lines[number].split() if number < len(lines) else []
            wrong = [
                entry
                for name, entry in zip(cells, row[1:], strict=False)
                if entry not in known or (entry == SELF) != (name == row[0])
            ]
            if len(row) != len(cells) + 1 or row[0] != cells[number - at - 1] or wrong:
                raise InputError(
                    f"line {number + 1}: {' '.join(row) or 'nothing'} is not the row of "
                    f"{cells[number - at - 1]} with one of {', '.join((OK, *REFUSED))} for each GPU"
                )
            for column, entry in zip(cells, row[1:], strict=True):
                if not is_nvlink and entry != SELF and status.get((row[0], column), OK) == OK:
                    status[row[0], column] = entry
        names, is_nvlink, at = cells, False, at + 1 + len(cells)
    return "\n".join(kept), Peers(tuple(names), status) if status else None


def read_matrix(text: str) -> Matrix:
    """The matrix in the output of `nvidia-smi topo -m`; InputError names what is not understood."""
    lines = [(i, _COLOUR.sub("", line)) for i, line in enumerate(text.splitlines(), 1)]
    # the rows of other blocks begin with GPU0 too, followed by an entry
    heads = (line.split()[:2] for _, line in lines)
    is_header = (len(head) > 1 and head[0] == "GPU0" and head[1] not in ENTRIES for head in heads)
    start = next((k for k, found in enumerate(is_header) if found), None)
    if start is None:
        raise InputError("no line begins with GPU0: paste the output of `nvidia-smi topo -m`")
    number, header = lines[start]
    names = _HEADING.findall(header)
    devices = [name for name in names if name not in AFFINITIES]
    for name in devices:
        if not (_GPU.fullmatch(name) or _NIC.fullmatch(name)) or devices.count(name) > 1:
            raise InputError(f"line {number}: column {name!r} is neither one GPU nor one NIC")
    rows: dict[str, list[str]] = {}
    for number, line in lines[start + 1 :]:
        if not line.strip() or line.strip().startswith("Legend"):
            break
        name, *cells = line.split()
        if name not in devices or name in rows:
            raise InputError(f"line {number}: {line.strip()!r} is not the row of one more device")
        if len(cells) < len(devices):
            raise InputError(f"line {number}: {name} has {len(cells)} entries, not {len(devices)}")
        for device, entry in zip(devices, cells, strict=False):
            is_link = _NVLINKS.fullmatch(entry) and _GPU.fullmatch(name) and _GPU.fullmatch(device)
            if not is_link and entry not in ENTRIES:
                raise InputError(
                    f"line {number}: unknown entry {entry!r} between {name} and {device}; "
                    f"known: {', '.join(ENTRIES)}, and NV# between GPUs"
                )
            if (entry == SELF) != (name == device):
                raise InputError(f"line {number}: {entry} cannot stand between {name} and {device}")
        rows[name] = cells
    return _matrix(devices, [name for name in names if name in AFFINITIES], rows)


def _matrix(devices: list[str], affinities: list[str], rows: Mapping[str, list[str]]) -> Matrix:
    missing = [device for device in devices if device not in rows]
    if missing:
        raise InputError(f"the row of {missing[0]} is missing; paste the whole output")
    entries = {(a, b): rows[a][i] for a in devices for i, b in enumerate(devices)}
    for (a, b), entry in entries.items():
        if entries[b, a] != entry:
            raise InputError(f"{a} - {b} is {entry}, but {b} - {a} is {entries[b, a]}")
    gpus = tuple(name for name in devices if _GPU.fullmatch(name))
    affinity = {}
    for gpu in gpus:
        stated = dict(zip(affinities, rows[gpu][len(devices) :], strict=False))
        nearest = [stated.get(name, UNKNOWN) for name in ("NUMA Affinity", "CPU Affinity")]
        affinity[gpu] = next((place for place in nearest if place != UNKNOWN), "")
    return Matrix(gpus, tuple(name for name in devices if name not in gpus), entries, affinity)
