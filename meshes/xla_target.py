"""Target description of a GPU that is not present, from which XLA compiles for it.

The message is `stream_executor.GpuTargetConfigProto` of openxla/xla
(xla/stream_executor/device_description.proto); one example per GPU is kept there under
xla/backends/gpu/target_config/specs. Sizes are bytes, the clock is in GHz.
"""

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.errors import InputError

# Equal for every compute capability from 7.0 on: CUDA C++ Programming Guide 12.9 (2025),
# table "Technical Specifications per Compute Capability".
CUDA_LIMITS = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 49152,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "registers_per_block_limit": 65536,
}
# XLA's field -> ours
CHIP_FIELDS = {
    "shared_memory_per_core": "shared_memory_per_core",
    "threads_per_core_limit": "threads_per_core",
    "core_count": "cores",
    "fpus_per_core": "fpus_per_core",
    "memory_bandwidth": "memory_bandwidth",
    "l2_cache_size": "l2_cache",
    "device_memory_size": "usable_memory",
    "shared_memory_per_block_optin": "shared_memory_per_block",
    "registers_per_core_limit": "registers_per_core",
}
FIRST_CAPABILITY = 7.0  # oldest that the CUDA plugin of jax compiles for
RUNTIME = "runtime_version { major: 12 minor: 9 patch: 0 }"  # of CUDA, that the program meets
# The versions of cuDNN. Blackwell's is that of XLA's own spec of a GB300: with an older one
# products of blocks with scales are expanded into products of float32 or bf16, which no such
# machine runs.
CUDNN = "dnn_version_info { major: 9 minor: 8 patch: 0 }"
CUDNN_OF_BLACKWELL = "dnn_version_info { major: 9 minor: 15 patch: 0 }"
BLACKWELL = 10.0  # its first compute capability


def xla_target_text(accelerator: Accelerator) -> str:
    """Text proto of `accelerator`: `target_config` of jax.experimental.topologies' descriptions.

    Raises:
        InputError: no NVIDIA chip of compute capability 7.0 or newer, or a figure that the compiler
            needs is not known.
    """
    capability = accelerator.compute_capability
    if accelerator.vendor != "NVIDIA" or capability is None or capability < FIRST_CAPABILITY:
        raise InputError(
            f"{accelerator.name} cannot be compiled for without the device: XLA does so for NVIDIA "
            f"chips of compute capability {FIRST_CAPABILITY} or newer; choose a cluster of "
            "such chips, or host"
        )
    chip = {field: int(accelerator.required(ours)) for field, ours in CHIP_FIELDS.items()}
    lines = [f"  {field}: {value}" for field, value in {**CUDA_LIMITS, **chip}.items()]
    major, minor = divmod(round(capability * 10), 10)
    return "\n".join(
        [
            "gpu_device_info {",
            *lines,
            f"  clock_rate_ghz: {accelerator.required('clock') / 1e9:g}",
            f"  cuda_compute_capability {{ major: {major} minor: {minor} }}",
            "}",
            'platform_name: "CUDA"',
            CUDNN_OF_BLACKWELL if capability >= BLACKWELL else CUDNN,
            RUNTIME,
            f'device_description_str: "{accelerator.title}"',
            "",
        ]
    )
