"""An instance of a GPU that is divided (NVIDIA's MIG): its share of cores, memory and bandwidth.

    3g of an H100    60 of 132 cores, 4/8 of memory and bandwidth

NVIDIA Multi-Instance GPU User Guide, supported profiles (docs.nvidia.com/datacenter/tesla/
mig-user-guide, 2026-11). "3/7 of the cores" there is of those that can be divided: seven times 16
of an H100's 132. Instances have no links to one another: nothing is trained over several.
"""

import re
from dataclasses import replace

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.errors import InputError
from scaling.meshes.units import format_binary

# Compute slices of a GPU -> slices of an instance -> its share of memory, by compute capability.
SEVEN = {1: 1 / 8, 2: 2 / 8, 3: 4 / 8, 4: 4 / 8, 7: 1.0}
FOUR = {1: 1 / 4, 2: 2 / 4, 4: 1.0}
SLICES = {8.0: (7, SEVEN), 9.0: (7, SEVEN), 10.0: (7, SEVEN), 10.3: (7, SEVEN), 12.0: (4, FOUR)}
# Cores of the whole chip -> slices -> cores, as `nvidia-smi mig -lgip` prints them: A100, H100
# PCIe, H100 SXM and H200, B200, RTX PRO 6000 (public outputs of 2023 to 2026; of a B200 the model
# of it in NVIDIA/go-nvml, 2025). Of others the share is of all.
CORES = {
    108: {1: 14, 2: 28, 3: 42, 4: 56, 7: 98},
    114: {1: 14, 2: 30, 3: 46, 4: 62, 7: 114},
    132: {1: 16, 2: 32, 3: 60, 4: 64, 7: 132},
    148: {1: 18, 2: 36},
    188: {1: 46, 2: 94, 4: 188},
}
WIDE = {132: 26}  # of one slice with the memory of two
NAMED = 0.1  # GB of a name are rounded: 18 of the 17.6 GiB of an eighth of an H200
CUT = ("memory", "usable_memory", "memory_bandwidth", "l2_cache")


def instance(chip: Accelerator, profile: str) -> Accelerator:
    """Return the instance as a chip of its own: `3g`, or `3g.40gb` as NVIDIA writes it.

    `1g.20gb` of an H100 is one slice with the memory of two.

    Raises:
        InputError: the chip cannot be divided, or not so.
    """
    if chip.vendor != "NVIDIA" or chip.compute_capability not in SLICES:
        raise InputError(f"--mig: {chip.name} cannot be divided; A100, H100, H200, B200 can")
    whole, shares = SLICES[chip.compute_capability]
    found = re.fullmatch(r"(\d)g(?:\.(\d+)gb(?:\+me)?)?", profile.strip().lower())
    if found is None or int(found[1]) not in shares:
        known = ", ".join(f"{slices}g" for slices in shares)
        raise InputError(f"--mig {profile}: {chip.name} has instances of {known}")
    slices, share = int(found[1]), shares[int(found[1])]
    if found[2] and chip.memory:
        stated = int(found[2]) * 2**30
        sizes = [share, 2 * share] if slices == 1 and shares is SEVEN else [share]
        fits = [each for each in sizes if abs(each * chip.memory - stated) <= NAMED * stated]
        if not fits:
            has = " or ".join(format_binary(each * chip.memory) for each in sizes)
            raise InputError(f"--mig {profile}: {slices}g of {chip.name} has {has} of memory")
        share = fits[0]
    cores = chip.cores and CORES.get(chip.cores, {}).get(slices, int(chip.cores * slices / whole))
    if share != shares[slices]:
        cores = WIDE.get(chip.cores or 0, cores)
    part = cores / chip.cores if cores and chip.cores else slices / whole
    cut = {name: getattr(chip, name) for name in CUT}
    return replace(
        chip,
        title=f"{chip.title}, MIG {slices}g",
        peaks={dtype: rate * part for dtype, rate in chip.peaks.items()},
        cores=cores,
        **{name: value and type(value)(value * share) for name, value in cut.items()},
    )
