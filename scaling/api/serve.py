"""Serving a model: decode steps, prompts, what fits, what it costs."""

import warnings
from pathlib import Path

from scaling.api.calibrate import load_profile
from scaling.api.inputs import (
    ClusterLike,
    MeshLike,
    RunLike,
    as_mesh,
    load_run,
)
from scaling.api.place import Figures, place_of, products_format
from scaling.api.public_api import entrance
from scaling.api.settings import Settings
from scaling.meshes.errors import InputError, whole_number
from scaling.meshes.shape import AXES, MeshShape
from scaling.meshes.units import parse_size
from scaling.models.config import with_positions
from scaling.profiles.profile import Profile
from scaling.questions.answer import Answer
from scaling.questions.serving.answer import serve as answer_serve
from scaling.questions.serving.decode import Case
from scaling.questions.serving.model import Formats, ServedModel, bare_model, served_model
from scaling.questions.serving.servers import Servers
from scaling.questions.serving.traffic import Request

MOST_DEVICES = 2**20  # a million: a second or two; the largest machines have a tenth of it
LARGEST = 1 << 40  # sequences, or tokens of one: sizes stay exact in floats


@entrance
def serve(
    model: RunLike | None = None,
    cluster: ClusterLike = "dgx-h100",
    nodes: int | None = None,
    mesh: MeshLike | None = None,
    *,
    devices: int | None = None,
    batch: int = 1,
    context: int | None = None,
    prompt: int | None = None,
    generate: int | None = None,
    weights: str = "bf16",
    kv: str = "bf16",
    compute: str | None = None,
    mfu: float | None = None,
    step_time: float | None = None,
    price: float | None = None,
    parameters: float | None = None,
    active: float | None = None,
    kv_per_token: int | str | None = None,
    set: Settings | None = None,
    overrides: Figures | None = None,
    calibration: Path | str | Profile | None = None,
) -> Answer:
    """Return the time of a decode step with throughput, memory, thresholds, requests and money.

    >>> import scaling as sc
    >>> answer = sc.serve("llama2-13b", "tpu-v5e", batch=16, context=8192)
    >>> round(answer.ideal * 1e3, 1)                                # ms
    20.4

    Args:
        model: as `load_run` takes it; None: `parameters` and `kv_per_token` describe it.
        cluster, nodes, calibration: as for `price_collective`.
        overrides: figures of the cluster or its chip: {"memory": "16GB", "peak_bf16": 1.97e14}.
        mesh: data, expert and tensor; None: all devices are tensor.
        devices: how many of them are used; None: those of the mesh, or of all nodes.
        batch: sequences that are decoded at once, on all devices.
        context: tokens of each in the KV cache; None: prompt and answer, or the recipe's length.
        prompt, generate: tokens of a request before and after its prefill.
        weights, kv: formats in memory: bf16, int8, int4 and others.
        compute: format of the products, whose peak counts; None: bf16, or the chip's first.
        mfu: share of the peak that prefill reaches; None: as its kernels are priced.
        step_time: seconds that a step may take: asks for the largest batch within.
        price: dollars for a device and hour; None: of the table, where it has the chip.
        parameters, active: of a model that is described by its numbers; a token uses `active`.
        kv_per_token: bytes of a token's keys and values in all layers, such as "100kB".
        set: values of the run, such as model.n_layers=4.

    Warns:
        UserWarning: a calibration of another machine or version.

    Raises:
        InputError: unknown names and formats, sizes that there cannot be, a mesh that cannot serve.
    """
    for name, value in (("--batch", batch), ("--prompt", prompt), ("--generate", generate)):
        _check_size(name, value)
    shape = None if mesh is None else as_mesh(mesh, AXES)
    wanted = devices if shape is None or devices is not None else shape.devices
    place, count = place_of(cluster, nodes, wanted, overrides)
    if count > MOST_DEVICES:
        raise InputError(f"{count:,} devices serve: at most {MOST_DEVICES:,}; use fewer --nodes")
    formats = Formats(weights, kv, products_format(place, compute))
    shape = shape or MeshShape(tensor=count)
    if shape.devices != count:
        raise InputError(f"--mesh {shape} has {shape.devices} devices, --devices asks for {count}")
    length = context
    if context is None and (prompt or generate):
        length = (prompt or 0) + (generate or 0)
    served, length = _model(model, parameters, active, kv_per_token, formats, set, length)
    _check_size("--context", length)
    profile, doubts = load_profile(place, calibration)
    for text in doubts:
        warnings.warn(text, stacklevel=3)  # past `entrance`
    case = Case(served, Servers(place, shape), profile, int(batch), int(length))
    return answer_serve(case, Request(prompt, generate, mfu, step_time), price)


def _model(
    model: RunLike | None,
    parameters: float | None,
    active: float | None,
    kv_per_token: int | str | None,
    formats: Formats,
    settings: Settings | None,
    context: int | None,
) -> tuple[ServedModel, int]:
    """Return the model, and the tokens of a sequence."""
    if (model is None) == (parameters is None):
        raise InputError(
            "name a MODEL, such as llama3-70b, or describe one by --parameters 70e9 "
            "--kv-per-token 160kB" + ", not both" * (model is not None)
        )
    if parameters is not None:
        given = parse_size(kv_per_token) if isinstance(kv_per_token, str) else kv_per_token or 0
        if context is None:
            raise InputError("--context is needed with --parameters, such as --context 8192")
        return bare_model(parameters, active, float(given), formats), context
    for name, value in (("--active", active), ("--kv-per-token", kv_per_token)):
        if value is not None:
            raise InputError(f"{name} {value} describes a model by --parameters: leave MODEL out")
    assert model is not None
    run = load_run(model, set=settings)
    length = run.batch.seq_len if context is None else context
    _check_size("--context", length)
    config = with_positions(run.model, int(length))
    return served_model(run.name, config, formats), length


def _check_size(name: str, value: int | None) -> None:
    """Raise InputError for a count below 1, or beyond what anything holds."""
    if value is not None and whole_number(name, value) > LARGEST:
        raise InputError(f"{name} {value}: at most {LARGEST:,}")
