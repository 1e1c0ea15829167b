"""What serving needs to know of a model: parameters, those a token uses, bytes of its KV cache.

    weights read in a step of b tokens = dense + routed x (1 - (1 - k / E)^b)

of E experts a token picks k: so many of them are picked by at least one of b tokens that choose
independently of each other.
"""

from dataclasses import dataclass, field

from scaling.meshes.errors import InputError, check_keys, check_range
from scaling.models.accounting import count_parameters, kv_cache_bytes
from scaling.models.accounting.matrices import STORED_BYTES
from scaling.models.config import ModelConfig

LARGEST = 1e18  # parameters, or bytes of a token, so that products stay finite


@dataclass(frozen=True)
class Formats:
    """Number formats of stored weights, of the KV cache, and of the products."""

    weights: str = "bf16"
    kv: str = "bf16"
    compute: str = "bf16"

    def __post_init__(self) -> None:
        check_keys([self.weights], STORED_BYTES, "--weights", "format")
        check_keys([self.kv], STORED_BYTES, "--kv", "format")

    @property
    def weight_bytes(self) -> float:
        """Bytes of one stored weight."""
        return STORED_BYTES[self.weights]

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
        """Bytes of all weights."""
        return self.total * self.formats.weight_bytes

    @property
    def dense_bytes(self) -> float:
        """Bytes of the weights that every step reads."""
        return (self.total - self.routed) * self.formats.weight_bytes

    @property
    def routed_bytes(self) -> float:
        """Bytes of the routed experts."""
        return self.routed * self.formats.weight_bytes

    def touched(self, tokens: float) -> float:
        """Share of the routed experts that a step of so many tokens reads."""
        return 1.0 - (1.0 - self.used / self.experts) ** tokens

    def kept(self, context: int) -> int:
        """Positions of a sequence of `context` tokens that the KV cache holds."""
        window = self.config.sliding_window if self.config else None
        return context if window is None else min(context, window)


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
    """Return a model of which the parameters and bytes of a position are all that is known.

    Raises:
        InputError: a figure that no model has.
    """
    check_range("--parameters", parameters, 1, LARGEST)
    check_range("--kv-per-token", kv_token, 0, LARGEST)
    used = parameters if active is None else active
    if not 1 <= used <= parameters:
        raise InputError(
            f"--active {used:g}: of {parameters:g} parameters a token uses from 1 to all of them"
        )
    return ServedModel(f"{parameters:.3g} parameters", parameters, used, kv_token, formats)
