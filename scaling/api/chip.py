"""What one chip can do."""

from scaling.api.entrance import entrance
from scaling.meshes import catalog
from scaling.questions.answer import Answer
from scaling.questions.chip import chip as answer_chip


@entrance
def chip(name: str, *, dtype: str = "bf16") -> Answer:
    """Return the peaks and figures of a chip, and the intensity from which it is compute bound.

    >>> import scaling as sc
    >>> round(float(sc.chip("h100-sxm")))
    295

    Args:
        name: an accelerator of the catalogue (`scaling chip list`), or a TOML file.
        dtype: number format of the peak that the intensity is of.

    Raises:
        InputError: an unknown chip (the nearest one is named), or format.
    """
    return answer_chip(catalog.accelerator(name), dtype)
