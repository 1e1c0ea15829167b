"""Remat policies by name: the tensors of a block that are kept for its backward pass.

    none        what the gradient of every operation needs
    selective   query, key, value, attention, mlp_up, mlp_gate
    full        nothing else than the block's input, which every policy keeps
    a list      the tensors that it names; those of a list "offload" in the host's memory
    MaxText's   names of its policies, by our tensors
    auto        the fastest of LADDER that fits, by the simulator (`scaling.planning.remat`)

    query, key, value    as they enter the attention
    attention            its result, and a flash kernel's log-sum-exp
    attention_out        the result times the output matrix, as it is added to the stream
    mlp_up, mlp_gate     inputs of the MLP's activation, of every expert
    expert_input         tokens of all devices along `expert`, as dropless experts take them; with a
                         capacity factor, or where they have no kernels, their rows

A product runs again in the backward pass if a gradient needs a result of it that is not kept.
"""

from dataclasses import dataclass

from scaling.meshes.errors import InputError, nearest
from scaling.models.config import ModelConfig

QKV = ("query", "key", "value")
PROJECTIONS = (*QKV, "attention_out")
HIDDEN = ("mlp_up", "mlp_gate")
NAMES = (*PROJECTIONS, "attention", *HIDDEN, "expert_input")
AUTO = "auto"
HOST = "@host"  # marks an offloaded tensor in the short form of a policy


@dataclass(frozen=True)
class SavedTensors:
    """Names of the tensors kept on the device, and of those kept in the host's memory."""

    save: tuple[str, ...] = ()
    offload: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return frozenset(self.save + self.offload)

    def __str__(self) -> str:
        """The short form: `query,key,mlp_up@host`; `parse_remat` reads it back."""
        return ",".join((*self.save, *(name + HOST for name in self.offload))) or "full"


Remat = str | SavedTensors  # a name of POLICIES or MAXTEXT, or the tensors

POLICIES: dict[str, SavedTensors | None] = {
    "none": None,
    "selective": SavedTensors((*QKV, "attention", *HIDDEN)),
    "full": SavedTensors(),
}
# AI-Hypercomputer/maxtext, src/maxtext/layers/decoders.py, get_remat_policy, read in 2026-11.
# Its query_proj, key_proj, value_proj, qkv_proj are our query, key, value; context is attention;
# out_proj attention_out; mlpwi, mlpwi_0, mlpwi_1 are mlp_gate and mlp_up. What its mlpwo names is
# only added to the stream: no gradient needs it, and jax does not keep it either.
MAXTEXT: dict[str, SavedTensors] = {
    "minimal_with_context": SavedTensors((*PROJECTIONS, "attention", *HIDDEN)),
    "minimal_flash": SavedTensors((*PROJECTIONS, "attention", *HIDDEN)),
    "minimal": SavedTensors((*PROJECTIONS, *HIDDEN)),
    "save_dot_with_context_except_mlp": SavedTensors((*PROJECTIONS, "attention")),
    "save_dot_except_mlpwi": SavedTensors(PROJECTIONS),
    "save_dot_except_mlp": SavedTensors(PROJECTIONS),
    "save_qkv_proj": SavedTensors(QKV),
    "save_out_proj": SavedTensors(("attention_out",)),
    "qkv_proj_offloaded": SavedTensors((), QKV),
    "minimal_offloaded": SavedTensors((), (*PROJECTIONS, *HIDDEN)),
}


# The trainer's policies, the one of most memory first: "minimal_with_context" computes no product
# again, "selective" the output projection.
LADDER: tuple[Remat, ...] = (
    *("none", "minimal_with_context", "selective", "save_dot_with_context_except_mlp"),
    *(SavedTensors((*QKV, "attention")), SavedTensors(("attention",)), "full"),
)
OFFLOADED: tuple[Remat, ...] = (SavedTensors((*QKV, "attention"), HIDDEN), "minimal_offloaded")


def parse_remat(text: str) -> Remat:
    """A policy's name, or the tensors of its short form, such as `query,key,mlp_up@host`."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1 and parts[0].removesuffix(HOST) not in NAMES:
        return text
    host = tuple(part.removesuffix(HOST) for part in parts if part.endswith(HOST))
    return SavedTensors(tuple(part for part in parts if not part.endswith(HOST)), host)


def kept_by(remat: Remat) -> SavedTensors | None:
    """The tensors that a policy keeps; None: whatever a gradient needs.

    Raises:
        InputError: a name that is no policy.
    """
    if isinstance(remat, SavedTensors):
        return remat
    if remat == AUTO:
        raise InputError(
            "remat 'auto' is chosen for a mesh and a chip, by train, predict and plan; state a "
            f"policy here, such as {', '.join(POLICIES)}"
        )
    policies = POLICIES | MAXTEXT
    if remat not in policies:
        raise InputError(
            f"remat {remat!r} is not a policy, nor a list of tensors such as "
            f"{','.join(NAMES[:4])}; {nearest(str(remat), policies)}"
        )
    return policies[remat]


def keeps(remat: Remat, *names: str) -> bool:
    """True if a policy keeps all of these tensors."""
    kept = kept_by(remat)
    return kept is None or kept.names >= set(names)


def tensor_names(config: ModelConfig) -> tuple[str, ...]:
    """The tensors of a model's blocks that a policy can name, in the order of the forward pass."""
    gate = ("mlp_gate",) if config.is_gated else ()
    rows = ("expert_input",) if config.moe else ()
    return (*QKV, "attention", "attention_out", *rows, *gate, "mlp_up")


def check_remat(remat: Remat, config: ModelConfig) -> None:
    """Raise InputError for a policy that is not known, or names what the model does not have."""
    if remat == AUTO:
        return
    if not isinstance(remat, SavedTensors):
        kept_by(remat)
        return
    given, valid = (*remat.save, *remat.offload), tensor_names(config)
    no_gate = f" (mlp {config.mlp!r} has no gate)"
    reasons = {"mlp_gate": no_gate, "expert_input": " (a dense model)"}
    for name in given:
        if name not in valid:
            why = reasons.get(name, "")
            raise InputError(
                f"remat: {name!r} is no tensor of this model{why}; use {', '.join(valid)}"
            )
        if given.count(name) > 1:
            raise InputError(f"remat: {name!r} is named twice; save it, or offload it")
