"""Pictures of one prediction, by kind."""

from scaling.api.pricing import Pricing, price_program
from scaling.meshes.errors import check_keys
from scaling.pictures.memory import step_memory
from scaling.pictures.mesh import mesh_axes
from scaling.pictures.roofline import step_roofline
from scaling.pictures.shapes import Picture
from scaling.pictures.steps import step_bars
from scaling.pictures.timeline import timeline
from scaling.simulate.prediction import Prediction
from scaling.simulate.step import partition_devices

KINDS = ("time", "memory", "roofline", "timeline", "mesh")  # of one prediction


def prediction_picture(prediction: Prediction, pricing: Pricing, kind: str) -> Picture:
    """Return one picture of a prediction, of KINDS."""
    check_keys([kind], KINDS, "plot", "kind")
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
