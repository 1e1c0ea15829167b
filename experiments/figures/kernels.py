"""Priced kernels against measured ones: the tables that the profiles were fitted on."""

from experiments.figures.against import points
from experiments.published import fit_grouped, fit_products
from scaling.pictures.curves import scatter
from scaling.pictures.shapes import Picture
from scaling.profiles.profile import matmul_fit
from scaling.profiles.shipped import shipped

WORDS = ("measured", "priced")


def products() -> Picture:
    """Every twelfth product of the published tables that the fits stand on."""
    found = []
    for (chip, recipe), shapes in sorted(fit_products.tables().items()):
        if recipe in fit_products.RECIPES:
            fit = matmul_fit(shipped(chip), shapes.dtype)
            pairs = zip(shapes.seconds, fit_products.seconds(shapes, fit), strict=True)
            found += points(f"{chip} {shapes.dtype}", list(pairs)[::12])
    return scatter(found, "Matrix products", WORDS)


def grouped() -> Picture:
    """Products of experts by Triton's kernels, recorded by tokamax, and by Transformer Engine."""
    found = []
    fits = fit_grouped.fits()
    for chip in (*fit_grouped.RECORDED, fit_grouped.TRAINED):
        fit, of = fits[fit_grouped.SAME.get(chip, chip)], fit_grouped.records_of(chip)
        time = fit_grouped.seconds(of, fit, fit_grouped.fitted(chip, fit.fill)[1])
        found += points(chip, zip(of.seconds, time, strict=True))
    return scatter(found, "Grouped products, bf16", WORDS)
