"""Serving a model: decode steps, prompts, what fits, what it costs."""

from pathlib import Path

from scaling.api.calibrate import load_profile
from scaling.api.inputs import (
    ClusterLike,
    MeshLike,
    Overrides,
    amount,
    as_mesh,
    cluster_with,
    products_format,
)
from scaling.api.public_api import entrance, warn
from scaling.api.runs import RunLike, Settings, load_run
from scaling.meshes.bandwidths import Measured
from scaling.meshes.errors import InputError, whole_number
from scaling.meshes.shape import AXES, MeshShape
from scaling.meshes.units import parse_size
from scaling.models.config import with_positions
from scaling.profiles.prices import PriceKind
from scaling.profiles.profile import Profile
from scaling.questions.answer import Answer
from scaling.questions.serving.answer import serve as answer_serve
from scaling.questions.serving.case import Formats, Servers, ServingCase, bare_model, served_model
from scaling.questions.serving.engine import engine_of
from scaling.questions.serving.traffic import ServedRequest

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
    experts: str | None = None,
    expert_parallel: bool = False,
    compute: str | None = None,
    software: str | None = None,
    mfu: float | None = None,
    step_time: float | str | None = None,
    price: float | None = None,
    price_kind: PriceKind | None = None,
    parameters: float | str | None = None,
    active: float | str | None = None,
    kv_per_token: int | str | None = None,
    set: Settings | None = None,
    overrides: Overrides | None = None,
    calibration: Path | str | Profile | None = None,
    measured: Measured | None = None,
) -> Answer:
    """Return the time of a decode step with throughput, memory, thresholds, requests and money.

    >>> import scaling as sc
    >>> answer = sc.serve("llama2-13b", "tpu-v5e", batch=16, context=8192)
    >>> round(answer.ideal * 1e3, 1)                                # ms
    20.4

    Args:
        model: recipe, run.json or Hugging Face config.json; or leave it out and give `parameters`.
        cluster: catalogue name or TOML file, or a Cluster.
        nodes: number of hosts; None: as many as devices or mesh need, else 1.
        mesh: axis sizes of data, expert and tensor; None: all devices are tensor.
        devices: number of devices that serve.
        batch: sequences that are decoded at once, on all devices.
        context: tokens of each sequence in the KV cache; None: prompt and answer, else the
            recipe's.
        prompt: tokens of a request's prompt.
        generate: tokens that are generated after it.
        weights: format of the weights in memory: bf16, fp8, int8, fp4, int4, fp32.
        kv: format of the KV cache, likewise.
        experts: format of the routed experts, where they alone have another.
        expert_parallel: the devices of tensor have whole experts instead of a part of each.
        software: engine, such as vllm, whose overheads are added; None: kernels one after another.
        mfu: share of the peak that prefill reaches, such as 0.4; None: as its kernels are priced.
        step_time: time that a step may take, such as 20ms: asks for the largest batch within it.
        parameters: parameters of a model that has no name, such as 30e9 or 30B.
        active: how many of `parameters` a token uses.
        kv_per_token: bytes of a token's keys and values in all layers, of `parameters`: 100kB.

    Warns:
        UserWarning: a calibration of another machine or version.

    Raises:
        InputError: unknown names and formats, sizes that there cannot be, a mesh that cannot serve.
    """
    if (model is None) == (parameters is None):
        raise InputError(
            "name a MODEL, such as llama3-70b, or describe one by --parameters 70e9 "
            "--kv-per-token 160kB" + ", not both" * (model is not None)
        )
    size = amount("--parameters", parameters) or 0.0
    shape = None if mesh is None else as_mesh(mesh, AXES)
    wanted = devices if shape is None or devices is not None else shape.devices
    place, count = cluster_with(wanted, cluster, nodes, overrides)
    if count > MOST_DEVICES:
        raise InputError(f"{count:,} devices serve: at most {MOST_DEVICES:,}; use fewer --nodes")
    formats = Formats(weights, kv, products_format(place, compute), experts)
    shape = shape or MeshShape(tensor=count)
    if shape.devices != count:
        raise InputError(f"--mesh {shape} has {shape.devices} devices, --devices asks for {count}")
    if context is None and (prompt or generate):
        context = (prompt or 0) + (generate or 0)
    if model is not None:
        for name, value in (("--active", active), ("--kv-per-token", kv_per_token)):
            if value is not None:
                raise InputError(
                    f"{name} {value} describes a model by --parameters: leave MODEL out"
                )
        run = load_run(model, set=set)
        context = run.batch.seq_len if context is None else context
    elif context is None:
        raise InputError("--context is needed with --parameters, such as --context 8192")
    numbers = {"--batch": batch, "--prompt": prompt, "--generate": generate, "--context": context}
    for name, number in numbers.items():
        if number is not None and whole_number(name, number) > LARGEST:
            raise InputError(f"{name} {number}: at most {LARGEST:,}")
    if model is not None:
        served = served_model(run.name, with_positions(run.model, int(context)), formats)
    else:
        per_token = parse_size(kv_per_token) if isinstance(kv_per_token, str) else kv_per_token or 0
        served = bare_model(size, amount("--active", active), float(per_token), formats)
    profile, doubts = load_profile(place, calibration, measured=measured)
    warn(doubts)
    servers = Servers(place, shape, engine_of(software), expert_parallel)
    case = ServingCase(served, servers, profile, int(batch), int(context))
    return answer_serve(
        case,
        ServedRequest(prompt, generate, mfu, amount("--step-time", step_time, "s")),
        price,
        price_kind,
    )
