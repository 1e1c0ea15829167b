"""What a process runs on, and what it measures there: `environment.json` and `measured.json`.

{"began": 1.79e9, "host": "node7", "process": 3, "processes": 8,
 "machine": "64 x NVIDIA H100 80GB HBM3, x86_64", "devices": ["NVIDIA H100 80GB HBM3", ...],
 "versions": {"jax": ...}, "compiler_options": {...}, "settings": {"NCCL_ALGO": "Ring", ...}}

Settings are environment variables of known prefixes: others may hold secrets.
"""

import os
import platform
import socket
import time
from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from scaling.compile.lower import planned_peak
from scaling.compile.options import compiler_options
from scaling.program.versions import installed_versions
from scaling.training.run_folder.measured import VERSIONS, measured_document

# Of NCCL and its network plugins, libfabric, UCX, XLA, jax, CUDA and TPUs.
PREFIXES = (
    "NCCL_", "AWS_OFI_NCCL_", "OFI_NCCL_", "FI_", "UCX_", "NVSHMEM_", "RCCL_",
    "XLA_", "TF_XLA_", "TF_CUDNN_", "JAX_", "LIBTPU_", "TPU_",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_", "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "GLOO_",
)  # fmt: skip
PACKAGES = (
    "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain",
    "jax-cuda12-plugin", "jax-cuda13-plugin", "nvidia-nccl-cu12", "nvidia-nccl-cu13",
    "nvidia-cudnn-cu12", "nvidia-cudnn-cu13",
)  # fmt: skip


def describe_environment(
    mesh: Mesh, env: Mapping[str, str] = os.environ, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Host, devices, versions and settings of this process; `began` is now, as unix time."""
    return {
        "began": time.time(),
        "host": socket.gethostname(),
        "process": jax.process_index(),
        "processes": jax.process_count(),
        "machine": machine_name(mesh),
        "system": platform.platform(),
        "python": platform.python_version(),
        "devices": [device.device_kind for device in mesh.local_devices],
        "driver": getattr(mesh.local_devices[0].client, "platform_version", None),
        "versions": installed_versions(PACKAGES),
        "compiler_options": dict(options or compiler_options(mesh.devices.flat[0].platform)),
        "settings": {name: env[name] for name in sorted(env) if name.startswith(PREFIXES)},
    }


def machine_name(mesh: Mesh) -> str:
    """Devices of the run and processor: `8 x cpu, x86_64`."""
    return f"{mesh.size} x {mesh.devices.flat[0].device_kind}, {platform.machine()}"


def measured(
    name: str,
    mesh: Mesh,
    compiled: jax.stages.Compiled,
    step_times: Mapping[int, float],
    recorded: tuple[int, int] | None,
    clock: Mapping[str, Any],
) -> dict[str, Any]:
    """The document of measured.json for the steps of this process; see `measured_document`."""
    peaks = {"measured": peak_memory(mesh), "compiled": planned_peak(compiled, mesh)}
    where = machine_name(mesh), installed_versions(VERSIONS)
    return measured_document(name, *where, step_times, peaks, recorded, clock)


def peak_memory(mesh: Mesh) -> int | None:
    """Bytes at the fullest moment of the fullest local device; None where jax does not count."""
    counts = [device.memory_stats() for device in mesh.local_devices]
    peaks = [stats["peak_bytes_in_use"] for stats in counts if stats]
    return max(peaks) if peaks else None
