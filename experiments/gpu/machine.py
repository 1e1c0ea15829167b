"""The machine of a measurement: chip, driver, versions, commit. Reads only, changes nothing."""

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from typing import Any

import jax

from scaling.meshes.catalog.load import accelerator
from scaling.program.versions import installed_versions

# What CUDA calls a chip -> its name in the catalogue. Matched exactly: an "H100 PCIe" is another
# chip than an "H100 80GB HBM3", with another peak.
CATALOGUE_NAMES = {
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80g",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H200": "h200-sxm",
    "NVIDIA B200": "b200-sxm",
    "NVIDIA GeForce RTX 3090": "rtx3090",
}
PACKAGES = (
    *("jax", "jaxlib", "flax", "optax", "chex", "numpy"),
    *("jax-cuda12-plugin", "jax-cuda12-pjrt", "jax-cuda13-plugin", "jax-cuda13-pjrt"),
    *("nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cublas-cu12", "nvidia-cublas"),
    *("nvidia-nccl-cu12", "nvidia-nccl-cu13"),
)
# Names of nvidia-smi's --query-gpu.
DRIVER = (
    *("name", "driver_version", "memory.total", "power.limit", "power.default_limit"),
    *("clocks.max.sm", "clocks.max.mem"),
)
LOAD = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")
ERROR_LENGTH = 300  # characters of a message that a results file keeps
SETTINGS = ("XLA_FLAGS", "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")


@dataclass(frozen=True)
class Chip:
    """The kind of device that is measured."""

    kind: str  # as jax prints it
    accelerator: str | None  # its name in the catalogue
    peak: float | None  # dense bf16 FLOP/s, from the catalogue
    note: str = ""

    @property
    def slug(self) -> str:
        """The kind as a folder's name."""
        return slug(self.kind)


def slug(name: str) -> str:
    """A name as a folder's: "nvidia-h200"."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def identify(kind: str) -> Chip:
    """The chip that jax calls `kind`; without a peak where the catalogue does not have it."""
    name = CATALOGUE_NAMES.get(kind)
    if name is None:
        known = ", ".join(CATALOGUE_NAMES)
        note = f"the peak of {kind!r} is not known, so there is no MFU; known: {known}"
        return Chip(kind, None, None, note)
    return Chip(kind, name, accelerator(name).peak("bf16"))


def describe(devices: list[jax.Device], commit: str | None = None) -> dict[str, Any]:
    """The machine as the results file holds it."""
    chip = identify(devices[0].device_kind)
    return {
        "device": {
            "kind": chip.kind,
            "count": len(devices),
            "platform": devices[0].platform,
            "accelerator": chip.accelerator,
            "peak_bf16": chip.peak,
            "memory_limit": memory(devices).get("bytes_limit"),
            "note": chip.note,
        },
        "driver": nvidia_smi(DRIVER),
        "versions": {"python": platform.python_version(), **versions()},
        "settings": {
            name: without_paths(os.environ[name]) for name in SETTINGS if name in os.environ
        },
        "host": {"system": platform.platform(), "cpus": os.cpu_count()},
        "commit": commit or git_commit(),
    }


def memory(devices: list[jax.Device]) -> dict[str, int]:
    """The allocator's figures in bytes, the largest over `devices`; empty where it keeps none."""
    found: dict[str, int] = {}
    for device in devices:
        for name, value in (device.memory_stats() or {}).items():
            found[name] = max(found.get(name, 0), value)
    return found


def versions() -> dict[str, str]:
    """Versions of the installed packages that matter here."""
    return installed_versions(PACKAGES)


def nvidia_smi(names: tuple[str, ...]) -> list[dict[str, str]] | None:
    """These figures of each GPU as nvidia-smi prints them, units included; None without it."""
    query = [f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
    lines = _output("nvidia-smi", *query)
    if not lines:
        return None
    rows = [[value.strip() for value in line.split(",")] for line in lines.splitlines()]
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


def git_commit() -> str | None:
    """The checked-out commit, marked where tracked files differ from it; None outside of git."""
    commit = _output("git", "rev-parse", "HEAD")
    changed = commit and _output("git", "status", "--porcelain", "--untracked-files=no")
    return f"{commit}, with changes" if changed else commit


def without_paths(text: str) -> str:
    """`text` with absolute paths cut down to their last part: results name no one's folders."""
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", text)


def short(error: BaseException) -> str:
    """An error in one line that names no one's folders."""
    first = next(iter(str(error).strip().splitlines()), "")
    return without_paths(f"{type(error).__name__}: {first}")[:ERROR_LENGTH]


def _output(*command: str) -> str | None:
    """The output of a command; None if it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
