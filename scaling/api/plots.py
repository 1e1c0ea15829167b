"""Pictures of one prediction, by kind."""

from collections.abc import Iterable
from pathlib import Path

from scaling.api.pricing import Pricing, price_program
from scaling.meshes.errors import InputError, check_keys
from scaling.pictures.files import check_picture, write_picture
from scaling.pictures.memory import step_memory
from scaling.pictures.mesh import mesh_axes
from scaling.pictures.roofline import step_roofline
from scaling.pictures.shapes import Picture
from scaling.pictures.steps import step_bars
from scaling.pictures.timeline import timeline
from scaling.simulate.prediction import Prediction
from scaling.simulate.step import partition_devices

KINDS = ("time", "memory", "roofline", "timeline", "mesh")  # of one prediction


def picture_paths(
    option: str, texts: Iterable[str], kinds: tuple[str, ...], default: str | None = None
) -> dict[str, Path]:
    """Return kind -> file from texts such as `timeline=step.svg`; a mere file is of the default.

    Raises:
        InputError: a text without a kind, an unknown kind, one that is given twice, no picture.
    """
    found: dict[str, Path] = {}
    for text in texts:
        kind, equals, name = text.partition("=")
        if not equals and default is not None:
            kind, name = default, text
        if not kind or not name:
            raise InputError(
                f"{option} {text}: write KIND=FILE, such as {kinds[0]}=picture.svg; kinds are "
                f"{', '.join(kinds)}"
            )
        check_keys([kind], kinds, option, "kind")
        if kind in found:
            raise InputError(f"{option} {kind} is given twice; give it once")
        check_picture(f"{option} {kind}", Path(name))
        found[kind] = Path(name)
    return found


def plot_prediction(prediction: Prediction, pricing: Pricing, kind: str, path: Path) -> None:
    """Write one picture of a prediction, from what it was computed from."""
    check_keys([kind], KINDS, "plot", "kind")
    check_picture("plot", path)
    write_picture(prediction_picture(prediction, pricing, kind), path, option="plot")


def prediction_picture(prediction: Prediction, pricing: Pricing, kind: str) -> Picture:
    """Return one picture of a prediction, of KINDS."""
    title = f"{prediction.name} on {pricing.mesh} of {pricing.cluster.name}"
    if kind == "time":
        return step_bars({pricing.mesh: prediction}, title)
    if kind == "mesh":
        program, per_node = pricing.program, pricing.cluster.devices_per_node
        devices = partition_devices(program, pricing.cluster)
        return mesh_axes(dict(program.mesh), per_node, title, devices)
    priced = price_program(pricing, record=kind != "roofline")
    if kind == "roofline":
        return step_roofline(priced, title)
    if kind == "timeline":
        return timeline(priced, title)
    return step_memory(priced, prediction.memory.capacity, title)
