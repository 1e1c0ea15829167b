"""What is served where: a model, the devices, and the letters that formulas have for both.

    weights read in a step of b tokens = dense + routed x (1 - (1 - k / E)^b)

Each token picks k of E experts: so many of them are picked by at least one of b tokens that choose
independently of each other. Over the devices are spread

    tensor    every matrix; the KV cache over heads, then over sequences
    expert    routed experts, the rest is copied; and the batch
    whole     routed experts over `tensor`, each as a whole, where they are not cut by it
    data      copies of the whole model; and the batch
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_keys, check_range
from scaling.meshes.placement import check_fits, groups_on
from scaling.meshes.shape import AXES, MeshShape
from scaling.meshes.units import format_count
from scaling.models.accounting import count_parameters, kv_cache_bytes
from scaling.models.accounting.matrices import STORED_BYTES, mean_context
from scaling.models.config import ModelConfig
from scaling.profiles.profile import Profile
from scaling.questions.answer import Answer, Input, Lettered, letters
from scaling.questions.serving.engine import NO_ENGINE, Engine

LARGEST = 1e18  # parameters, or bytes of a token, so that products stay finite
SERVING_AXES = ("data", "expert", "tensor")


@dataclass(frozen=True)
class Formats:
    """Number formats of stored weights, of the KV cache, of the products, of routed experts."""

    weights: str = "bf16"
    kv: str = "bf16"
    compute: str = "bf16"
    experts: str | None = None  # where they alone are stored in another format

    def __post_init__(self) -> None:
        check_keys([self.weights], STORED_BYTES, "--weights", "format")
        check_keys([self.kv], STORED_BYTES, "--kv", "format")
        check_keys([self.experts or self.weights], STORED_BYTES, "--experts", "format")

    @property
    def weight_bytes(self) -> float:
        return STORED_BYTES[self.weights]

    @property
    def expert_bytes(self) -> float:
        return STORED_BYTES[self.experts or self.weights]

    @property
    def activation_bytes(self) -> float:
        """Bytes of one activation between products: those of products of 8 bits are in 16."""
        return max(2.0, STORED_BYTES.get(self.compute, 2.0))


@dataclass(frozen=True)
class ServedModel:
    """Parameters are counts; bytes follow from the formats."""

    name: str
    total: float  # parameters
    active: float  # that one token uses
    kv_token: float  # bytes of the KV cache of one position, all layers
    formats: Formats = field(default_factory=Formats)
    config: ModelConfig | None = None  # None: the layers are not known
    routed: float = 0.0  # of the total, those of routed experts
    experts: int = 1  # E, routed ones of a layer
    used: int = 1  # k of them, by one token

    @property
    def weight_bytes(self) -> float:
        return self.dense_bytes + self.routed_bytes

    @property
    def dense_bytes(self) -> float:
        """Bytes of the weights that every step reads."""
        return (self.total - self.routed) * self.formats.weight_bytes

    @property
    def routed_bytes(self) -> float:
        return self.routed * self.formats.expert_bytes

    def touched(self, tokens: float) -> float:
        """Share of the routed experts that a step of so many tokens reads."""
        return 1.0 - (1.0 - self.used / self.experts) ** tokens

    def kept(self, context: int) -> int:
        """Positions of a sequence of `context` tokens that the KV cache holds, of a mean layer."""
        return context if self.config is None else math.ceil(mean_context(self.config, context))


def served_model(name: str, config: ModelConfig, formats: Formats) -> ServedModel:
    """Return a model of known layers."""
    count = count_parameters(config)
    kv_token = float(kv_cache_bytes(config, 1, formats.kv))
    moe = config.moe
    if moe is None or moe.n_experts == moe.experts_per_token:
        return ServedModel(name, count.total, count.active, kv_token, formats, config)
    experts, used = moe.n_experts, moe.experts_per_token
    routed = (count.total - count.active) * experts / (experts - used)
    figures = (count.total, count.active, kv_token, formats, config, routed, experts, used)
    return ServedModel(name, *figures)


def bare_model(
    parameters: float, active: float | None, kv_token: float, formats: Formats
) -> ServedModel:
    """Return a model of which the parameters and bytes of a position are all that is known."""
    check_range("--parameters", parameters, 1, LARGEST)
    check_range("--kv-per-token", kv_token, 0, LARGEST)
    used = parameters if active is None else active
    if not 1 <= used <= parameters:
        raise InputError(
            f"--active {format_count(used)}: of {format_count(parameters)} parameters a token uses "
            "from 1 to all of them"
        )
    return ServedModel(
        f"{format_count(parameters)} parameters", parameters, used, kv_token, formats
    )


@dataclass(frozen=True)
class Servers:
    """A mesh on a cluster, and how it is used."""

    cluster: Cluster
    mesh: MeshShape
    engine: Engine = NO_ENGINE
    whole_experts: bool = False  # the devices of `tensor` have them whole, not a part of each

    @property
    def devices(self) -> int:
        return self.mesh.devices

    @property
    def peak_bytes(self) -> float:
        """bytes/s of the memory of one device."""
        return self.cluster.accelerator.required("memory_bandwidth")

    @property
    def expert_groups(self) -> int:
        """Devices, or groups of them, that each have routed experts of their own."""
        return self.mesh.expert * (self.mesh.tensor if self.whole_experts else 1)

    def key_copies(self, config: ModelConfig | None) -> float:
        """Devices of `tensor` that have the same keys and values."""
        if config is None or not self.engine.copies_keys:
            return 1.0
        return self.mesh.tensor / min(self.mesh.tensor, 1 if config.mla else config.n_kv_heads)

    def groups(self, axis: str) -> np.ndarray:
        """Device ids [groups, members] along one axis."""
        return groups_on(self.mesh, (axis,), self.cluster)

    def device_weights(self, model: ServedModel) -> float:
        """Bytes of weights that one device holds."""
        tensor, expert = self.mesh.tensor, self.mesh.expert
        return model.dense_bytes / tensor + model.routed_bytes / (tensor * expert)


@dataclass(frozen=True)
class ServingCase(Lettered):
    """What is served where, with which figures."""

    model: ServedModel
    servers: Servers
    profile: Profile
    batch: float  # sequences of all devices
    context: int  # tokens of each

    @property
    def shards(self) -> int:
        """Devices, or groups of them along tensor, that the batch is cut over."""
        return self.servers.mesh.data * self.servers.mesh.expert

    def ranged(self, answer: Answer, inverse: bool = False) -> Answer:
        """The answer with the range that the engine's steps have; `inverse`: per step."""
        if (ends := self.servers.engine.range) is None:
            return answer
        low, high = (1 / ends[1], 1 / ends[0]) if inverse else ends
        return replace(answer, low=low * float(answer), high=high * float(answer))

    @cached_property
    def letters(self) -> dict[str, Input]:
        model, formats, mesh = self.model, self.model.formats, self.servers.mesh
        chip, of_experts = self.servers.cluster.accelerator, formats.experts or formats.weights
        return letters(
            Input("B", self.batch, "sequences"),
            Input("T", model.kept(self.context), "tokens", "of each that the KV cache holds"),
            Input("V", model.kv_token, "bytes", f"of a token in {formats.kv}"),
            Input("N", self.servers.devices, "devices"),
            Input("X", mesh.data, "", "copies of the model"),
            Input("Y", mesh.tensor, "devices", "along tensor"),
            Input("Z", mesh.expert, "devices", "along expert"),
            Input("W", self.servers.peak_bytes, "bytes/s", "memory bandwidth of a device"),
            Input("C", chip.peak(formats.compute), "FLOP/s", f"{formats.compute} peak"),
            Input("A", model.active, "parameters", "that a token uses"),
            Input("P", model.total, "parameters"),
            Input("b", formats.weight_bytes, "bytes", f"of a weight in {formats.weights}"),
            Input("M", model.weight_bytes, "bytes", "of weights"),
            Input("M_e", model.routed_bytes, "bytes", f"of routed experts in {of_experts}"),
            Input(
                "b_e", formats.expert_bytes, "bytes", f"of a weight of an expert in {of_experts}"
            ),
            Input("m", self.servers.device_weights(model), "bytes", "of weights on a device"),
            Input("E", model.experts, "experts", "of a layer"),
            Input("k", model.used, "experts", "of a token"),
        )


def check_servers(servers: Servers, model: ServedModel) -> None:
    """Raise InputError for a mesh that does not serve, or does not fit on the cluster."""
    mesh = servers.mesh
    check_fits(mesh, servers.cluster)
    for axis in AXES:
        if getattr(mesh, axis) > 1 and axis not in SERVING_AXES:
            raise InputError(
                f"--mesh {mesh}: serving has the axes {', '.join(SERVING_AXES)}, not {axis}: "
                "fsdp and context would send weights or keys at every token"
            )
    groups = servers.expert_groups
    if groups > 1 and (model.routed == 0 or model.experts % groups):
        have = f"{model.experts} routed experts" if model.routed else "no routed experts"
        over = f"expert={mesh.expert}" + f" x tensor={mesh.tensor}" * servers.whole_experts
        raise InputError(f"--mesh {mesh}: {model.name} has {have}, which {over} does not divide")
