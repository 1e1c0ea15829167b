"""What one chip can do."""

from scaling.api.inputs import Overrides, device_count, override_texts
from scaling.api.public_api import entrance
from scaling.meshes import catalog
from scaling.meshes.catalog.overrides import override_chip
from scaling.meshes.errors import whole_number
from scaling.questions.answer import Answer
from scaling.questions.chip import chip as answer_chip
from scaling.questions.mig import instance


@entrance
def chip(
    name: str,
    *,
    dtype: str | None = None,
    devices: int = 1,
    registers: int | None = None,
    mig: str | None = None,
    overrides: Overrides | None = None,
) -> Answer:
    """Return the peaks and figures of a chip, and the intensity from which it is compute bound.

    Its last parts are the constants by which kernels and links are priced, with their evidence.

    >>> import scaling as sc
    >>> round(float(sc.chip("h100-sxm")))
    295

    Args:
        name: an accelerator of the catalogue (`scaling chip list`), or a TOML file.
        dtype: number format of the peak that the intensity is of; None: bf16, or fp16 or fp32 where
            the chip does not multiply that.
        devices: so many chips have their peaks, memory and power added up.
        registers: 32-bit registers of a thread, to ask how many warps fit a core.
        mig: an instance of a divided GPU (MIG), such as 3g.
        overrides: a figure in place of the catalogue's, such as clock=1.59GHz or peak_bf16=400e12,
            or a mapping.

    Raises:
        InputError: an unknown chip, figure (the nearest one is named) or format.
    """
    accelerator = override_chip(catalog.accelerator(name), override_texts(overrides))
    if mig is not None:
        accelerator = instance(accelerator, mig)
    register_count = None if registers is None else whole_number("--registers", registers)
    return answer_chip(accelerator, dtype, device_count(devices), register_count)
