"""Priced kernels against measured ones: the tables that the profiles were fitted on."""

from dataclasses import replace

import numpy as np

from experiments.figures.against import points
from experiments.published import fit_grouped, fit_kernels
from scaling.meshes import catalog
from scaling.pictures.curves import scatter
from scaling.pictures.shapes import Picture
from scaling.profiles.profile import matmul_fit
from scaling.profiles.shipped import shipped
from scaling.simulate.kernels import kernel_time

WORDS = ("measured", "priced")


def products() -> Picture:
    """All products of XLA's tables, as bursts: they are over before a power limit counts."""
    found = []
    for (chip, dtype), shapes in sorted(fit_kernels.tables().items()):
        fit = matmul_fit(shipped(chip), dtype)
        if fit.evidence.grade == "calibrated":
            profile = replace(shipped(chip), matmul=(replace(fit, sustained=1.0),))
            time = np.asarray(kernel_time(shapes.kernel, catalog.accelerator(chip), profile).time)
            found += points(f"{chip} {dtype}", zip(shapes.seconds, time, strict=True))
    return scatter(found, "Matrix products, sides of 256 to 4,096", WORDS)


def grouped() -> Picture:
    """Products of experts by Triton's kernels, recorded by tokamax."""
    found = []
    for chip in fit_grouped.FITTED:
        of = fit_grouped.records(chip)
        time = fit_grouped.seconds(of, chip, *fit_grouped.fitted(chip))
        found += points(chip, zip(of.seconds, time, strict=True))
    return scatter(found, "Grouped products, bf16", WORDS)
