"""Prints settings, one a line, under which this processor computes as one of 2008 would.

    env $(python tools/old_cpu.py) make test

The last digits of sums, products and logarithms then are others, as they are on any other machine:
OpenBLAS has other kernels and one thread, numpy no AVX, the C library and XLA no FMA.
"""

import platform

import numpy


def settings() -> dict[str, str]:
    """Return the environment; on other processors than x86 only the threads differ."""
    found = {"OPENBLAS_NUM_THREADS": "1"}
    if platform.machine() not in ("x86_64", "AMD64"):
        return found
    simd = numpy.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    return found | {
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": ",".join(simd),
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-FMA4",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX",  # SSE4_2 leaves it without conversions of fp8
    }


if __name__ == "__main__":
    for name, value in settings().items():
        print(f"{name}={value}")
