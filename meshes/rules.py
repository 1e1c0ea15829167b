"""Mesh axes that shard each dimension of a tensor, by the dimension's logical name.

    weight ("embed", "mlp")  of shape [4096, 14336]  on fsdp=4, tensor=2   ->  ("fsdp", "tensor")

Activations are cut over the batch everywhere. If sequence-parallel, the residual stream between
blocks is cut over `tensor` as well, so that it and its norms are not repeated there: over its batch
("stream") where that divides, since NCCL gathers and scatters a tensor's first dimension, and each
other one costs a copy; else over its sequence ("residual").
Weights are stored cut over `tensor` along heads, mlp or vocab; those of experts over `expert`, each
device holding some of them; and along "embed" (of latents "latent") over every other axis that cuts
tokens but `data`, which stays for copies. All devices of a mesh that meet other tokens with the
same weight share it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.shape import MeshShape

Dims = tuple[str | None, ...]  # a tensor's logical dimensions; None: one that is never cut
Entry = None | str | tuple[str, ...]  # mesh axes of one tensor dimension, as in a PartitionSpec

REPLICAS = ("data", "expert", "context")  # axes beside fsdp over which other software's copies lie

GATHERED = ("embed", "latent")  # dimensions along which a weight is gathered before its product

DEFAULT: Mapping[str, tuple[str, ...]] = {
    "batch": ("data", "fsdp", "expert"),
    "stream": ("data", "fsdp", "expert"),  # the batch of the residual stream
    "sequence": ("context",),  # inside attention and MLP
    "residual": ("context", "tensor"),  # between them
    # d_model of a weight, gathered just before use; an axis of another dimension cuts that one
    "embed": ("fsdp", "expert", "context"),
    "latent": ("fsdp", "expert", "context"),  # likewise, of a matrix whose inputs are latents
    "heads": ("tensor",),
    "kv_heads": ("tensor",),
    "mlp": ("tensor",),
    "vocab": ("tensor",),
    "experts": ("expert",),
    "rank": (),  # of adapters (models/adapters.py)
    "layers": ("stage",),  # of the stored stack
}


@dataclass(frozen=True)
class Rules:
    """Mesh axes for each logical dimension. Axes of size 1 never appear in a spec."""

    mesh: MeshShape
    table: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: dict(DEFAULT))

    def __hash__(self) -> int:
        return hash((self.mesh, tuple(sorted(self.table.items()))))

    def axes(self, dim: str | None) -> tuple[str, ...]:
        """Mesh axes (of size > 1) that shard the dimension called `dim`; () for None."""
        if dim is None:
            return ()
        check_keys([dim], self.table, "sharding rules")
        return tuple(axis for axis in self.table[dim] if getattr(self.mesh, axis) > 1)

    def spec(self, *dims: str | None) -> tuple[Entry, ...]:
        """Entries for `PartitionSpec(*entries)`; InputError if two dimensions share a mesh axis."""
        of_gathered = self.gathered_axes(*dims)
        cuts = [of_gathered if dim in GATHERED else self.axes(dim) for dim in dims]
        used = [axis for axes in cuts for axis in axes]
        twice = sorted({axis for axis in used if used.count(axis) > 1})
        if twice:
            raise InputError(
                f"dimensions {dims} put mesh axis {', '.join(twice)} on two dimensions: {cuts}; "
                "give one of these dimensions another rule"
            )
        return tuple(axes[0] if len(axes) == 1 else axes or None for axes in cuts)

    def gathered_axes(self, *dims: str | None) -> tuple[str, ...]:
        """Mesh axes over which a weight with these dimensions is gathered before it is multiplied:
        those of "embed" or "latent" that none of its other dimensions has."""
        others = {axis for dim in dims if dim not in GATHERED for axis in self.axes(dim)}
        own = (axis for dim in dims if dim in GATHERED for axis in self.axes(dim))
        return tuple(axis for axis in own if axis not in others)

    @property
    def stream_cut(self) -> tuple[tuple[str, ...], int]:
        """Mesh axes that cut the residual stream beyond its batch and sequence, and its dimension.

        The dimension is 0 (batch) or 1 (sequence); without such axes 0.
        """
        by_batch = tuple(a for a in self.axes("stream") if a not in self.axes("batch"))
        by_sequence = tuple(a for a in self.axes("residual") if a not in self.axes("sequence"))
        return (by_sequence, 1) if by_sequence else (by_batch, 0)

    def shards(self, *dims: str | None) -> int:
        """Number of parts a tensor with these dimensions is sharded into."""
        return self.mesh.size(named(self.spec(*dims)))


def make_rules(
    mesh: MeshShape,
    sequence_parallel: bool,
    whole: Iterable[str] = (),
    sequences: int = 1,
    embed: tuple[str, ...] = DEFAULT["embed"],
    latent: tuple[str, ...] = DEFAULT["latent"],
) -> Rules:
    """The default rules on `mesh`; the sizes of `whole` dimensions do not divide: never sharded.

    `embed` are the axes that shard d_model of weights, `latent` latents. `sequence_parallel` shards
    the residual stream over `tensor` as well: by its batch if `tensor` divides the `sequences` of a
    microbatch on a batch shard, else by its sequence.
    """
    table = {dim: () if dim in set(whole) else axes for dim, axes in DEFAULT.items()}
    table["embed"], table["latent"] = embed, latent
    by_batch = sequences % mesh.tensor == 0
    if by_batch or not sequence_parallel:
        table["residual"] = table["sequence"]
    if by_batch and sequence_parallel:
        table["stream"] = *table["batch"], "tensor"
    return Rules(mesh, table)


def named(spec: Iterable[Entry]) -> frozenset[str]:
    """All mesh axes in the entries of a spec."""
    entries = ((entry,) if isinstance(entry, str) else (entry or ()) for entry in spec)
    return frozenset(axis for entry in entries for axis in entry)


def check_divisible(what: str, size: int, axes: Iterable[str], mesh: MeshShape) -> None:
    """Raise InputError unless `size` is a multiple of the product of the sizes of `axes`.

    `what` names the quantity as the user does: "n_heads", "batch.global_batch".
    """
    axes = tuple(a for a in axes if getattr(mesh, a) > 1)
    parts = mesh.size(axes)
    if size % parts == 0:
        return
    product = " x ".join(f"{a}={getattr(mesh, a)}" for a in axes)
    total = f" = {parts}" if len(axes) > 1 else ""
    up = -(-size // parts) * parts
    advice = f"use axis sizes whose product divides {size}"
    if len(axes) == 1:
        fits = ", ".join(map(str, divisors(size)[:12]))
        instead = ", or the data axis for the rest" if axes == ("fsdp",) else ""
        advice = f"use {axes[0]} of {fits}{instead}"
    raise InputError(
        f"{what}={size} is not divisible by {product}{total}; {advice}, or {what} of {up}"
    )


def divisors(n: int) -> list[int]:
    """All divisors of `n`, ascending."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]
