"""Seconds of one forward pass: kernels one after another, and collectives that nothing hides.

    decode  = sum over layers of  weights + attention + norms ... + 2 all-reduces of [b, D]

A decode step leaves nothing to compute beside its small all-reduces: each product needs the sum
before it. The kernels are those of `scaling.simulate.kernels`, with the profile's efficiencies and
overheads; what an engine adds is `engine.Overheads`.
"""

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from scaling.collectives.cost import collective_time
from scaling.meshes.errors import InputError
from scaling.models.accounting.matrices import BYTES, n_moe_layers, value_dim
from scaling.profiles.io import ideal
from scaling.profiles.profile import ANY, Profile
from scaling.program.ir import CollectiveKind
from scaling.questions.serving.case import ServedModel, Servers, ServingCase
from scaling.questions.serving.engine import Overheads
from scaling.questions.serving.kernels import (
    Called,
    ForwardPass,
    attention_kernels,
    small_kernels,
    weight_kernels,
)
from scaling.simulate.kernels import kernel_time, peak_rate

ALL_REDUCES = 2  # of a layer: after the attention's output matrix and after the MLP's


@dataclass(frozen=True)
class Call:
    """One collective of a forward pass, as often as it runs."""

    name: str
    kind: CollectiveKind
    bytes: float  # as nccl-tests counts them
    calls: int
    groups: np.ndarray


@dataclass(frozen=True)
class Seconds:
    """Seconds of one forward pass, by what is waited for."""

    weights: float
    cache: float  # the attention, which reads the KV cache
    small: float  # norms, rotations, activations
    network: tuple[float, ...]  # of each collective
    engine: float = 0.0  # what it adds

    @property
    def total(self) -> float:
        return self.weights + self.cache + self.small + sum(self.network) + self.engine


def pass_seconds(work: ForwardPass, profile: Profile) -> Seconds:
    """The seconds of a forward pass with the figures of a profile."""
    servers, known = work.servers, with_format(profile, work.model.formats.compute)
    chip, engine = servers.cluster.accelerator, servers.engine
    slow = engine.large_tiles if work.has_large_tiles else 1.0

    def seconds(called: Called) -> float:
        kernel, times = called
        tiles = slow if kernel.kind == "grouped" else 1.0
        return times * tiles * float(kernel_time(kernel, chip, known).time)

    return Seconds(
        sum(map(seconds, weight_kernels(work))),
        sum(map(seconds, attention_kernels(work))),
        sum(map(seconds, small_kernels(work))),
        tuple(call_seconds(call, servers, known) for call in calls(work)),
        engine.overheads.times(counts(work)),
    )


def counts(work: ForwardPass) -> Overheads:
    """How many a pass has of what an engine takes time for."""
    config, formats = work.model.config, work.model.formats
    if config is None:
        return Overheads(work.sequences)
    experts, layers = n_moe_layers(config), config.n_layers
    quantised = layers if BYTES.get(formats.compute) == formats.weight_bytes == 1 else 0
    return Overheads(work.sequences, layers, experts, quantised)


def totals(work: ForwardPass) -> tuple[float, float]:
    """Bytes that a device moves in a pass, and seconds of its products at their peaks.

    Rows that fill the tiles of experts are computed, too.
    """
    chip, moved, math = work.servers.cluster.accelerator, 0.0, 0.0
    for kernel, times in (*weight_kernels(work), *attention_kernels(work), *small_kernels(work)):
        moved += times * float(kernel.bytes)
        if kernel.flops:
            rows = float(kernel.dims[1]) if kernel.kind == "grouped" else work.tile
            filled = ceil(rows / work.tile) * work.tile / rows
            math += times * filled * float(kernel.flops) / peak_rate(chip, kernel.dtype)
    return moved, math


def call_seconds(call: Call, servers: Servers, profile: Profile) -> float:
    """The seconds of all calls of one collective."""
    if call.kind == "all-reduce" and servers.engine.own_all_reduce:
        profile = ideal()
    cost = collective_time(call.kind, call.bytes, call.groups, servers.cluster, profile)
    return call.calls * float(cost.time)


def calls(work: ForwardPass) -> list[Call]:
    """The collectives of a forward pass; none where the layers are not known."""
    model, servers, found = work.model, work.servers, list[Call]()
    config, mesh = model.config, servers.mesh
    if config is None:
        return found
    value, layers = model.formats.activation_bytes, config.n_layers
    stream = work.tokens * config.d_model * value
    if mesh.tensor > 1:
        groups = servers.groups("tensor")
        count = ALL_REDUCES * layers
        found.append(Call("all-reduces of [B, D]", "all-reduce", stream, count, groups))
        heads = 1 if config.mla else config.n_kv_heads
        cut = work.queries == 1 and not servers.engine.copies_keys
        if cut and heads < mesh.tensor:  # the cache is cut over sequences as well
            sent = work.sequences * config.n_heads / mesh.tensor * value_dim(config) * value
            inner = _inner_groups(groups, heads, servers)
            name = "all-to-alls of heads for sequences"
            found.append(Call(name, "all-to-all", sent, 2 * layers, inner))
    if mesh.expert > 1:
        groups, name = servers.groups("expert"), "all-to-alls of tokens for experts"
        count = 2 * n_moe_layers(config)
        found.append(Call(name, "all-to-all", stream * model.used, count, groups))
    return found


def _inner_groups(groups: np.ndarray, heads: int, servers: Servers) -> np.ndarray:
    """Devices of a tensor group that share a KV head; all, where these cannot be priced alone."""
    size = groups.shape[1]
    if size % heads:
        return groups
    inner = groups.reshape(-1, size // heads)
    try:
        collective_time("all-to-all", 1.0, inner, servers.cluster, ideal())
    except InputError:  # boxes of different forms on a torus
        return groups
    return inner


def decode_pass(servers: Servers, model: ServedModel, batch: float, context: int) -> ForwardPass:
    """The decode step of `batch` sequences over all devices."""
    shards = servers.mesh.data * servers.mesh.expert
    return ForwardPass(model, servers, batch / shards, 1, model.kept(context))


def mixed_pass(case: ServingCase, prompt: int, prompts: float) -> ForwardPass:
    """A decode step that reads so many prompts of new sequences beside, one at least.

    They are cut over the shards of the batch, or all wait for the one that has a prompt.
    """
    shards = 1 if case.servers.engine.pads_copies else case.shards
    work = decode_pass(case.servers, case.model, case.batch, case.context)
    return replace(work, prompts=max(1.0, prompts / shards), prompt=prompt)


def prompt_pass(servers: Servers, model: ServedModel, prompt: int) -> ForwardPass:
    """The forward pass of a prompt; with experts spread, one for each device along them."""
    return ForwardPass(model, servers, 1.0, prompt, model.kept(prompt))


def with_format(profile: Profile, dtype: str) -> Profile:
    """The profile with figures for `dtype`; where nobody measured any, those of bf16."""
    known = {fit.dtype for fit in profile.matmul}
    if dtype in known or ANY in known:
        return profile
    other = next((fit for fit in profile.matmul if fit.dtype == "bf16"), profile.matmul[0])
    return replace(profile, matmul=(*profile.matmul, replace(other, dtype=dtype)))
