"""What a model costs by counting."""

from scaling.api.inputs import RunLike, load_run
from scaling.api.kernel_place import device_count
from scaling.api.public_api import entrance
from scaling.api.settings import Settings, parse_settings
from scaling.meshes.errors import InputError, nearest, whole_number
from scaling.meshes.units import parse_count, parse_quantity
from scaling.models.accounting.matrices import BYTES, STORED_BYTES
from scaling.questions.answer import Answer
from scaling.questions.count import count as answer_count
from scaling.questions.kept import Counted

LARGEST = 1e18  # tokens, or bytes of a device, chosen by this project


@entrance
def count(
    model: RunLike,
    *,
    set: Settings | None = None,
    batch: str | int | float | None = None,
    seq_len: int | None = None,
    dtype: str | None = None,
    kv: str | None = None,
    tokens: str | int | float | None = None,
    checkpoints_per_layer: float | None = None,
    bytes_per_parameter: float = 10,
    devices: int = 1,
    causal: bool = False,
    memory: str | int | float | None = None,
) -> Answer:
    """Return the parameters of a model by part, with its FLOPs, caches, memory and training.

    >>> import scaling as sc
    >>> answer = sc.count("llama3-70b", kv="int8")
    >>> answer.answer, answer["KV cache of a token"].answer
    (70553706496, 163840.0)

    Args:
        model: as of `load_run`: a preset, a config.json, "custom" with every shape in `set`.
        set: values by dotted key of run.json.
        batch: tokens of a step, a number or "4M"; None: the run's.
        seq_len: tokens of a sequence, the context of attention; None: the run's.
        dtype: format of activations; None: that of the run's computation.
        kv: format of the KV cache; None: as activations.
        tokens: of the whole training, a number or "15T"; None: 20 a parameter.
        checkpoints_per_layer: tensors of width d_model that a layer keeps for its backward pass.
        bytes_per_parameter: of weights and optimiser.
        devices: that share weights, optimiser and activations evenly.
        causal: half of the attention's scores count.
        memory: bytes of a device, a number or "96GB": also how many devices are filled.

    Raises:
        InputError: an unknown model, format or key (the nearest one is named), or a number out of
            its range.
    """
    settings = parse_settings(set or ())
    if seq_len is not None:
        if "batch.seq_len" in settings:
            raise InputError("--seq-len and --set batch.seq_len are the same: give one of them")
        settings["batch.seq_len"] = whole_number("--seq-len", seq_len)
    run = load_run(model, set=settings)
    own = dtype or run.precision.between
    for option, name, known in (("--dtype", own, BYTES), ("--kv", kv or own, STORED_BYTES)):
        if name not in known:
            raise InputError(f"{option} {name!r} is no format; {nearest(name, known)}")
    asked = Counted(
        tokens_per_step=run.batch.tokens if batch is None else _amount("--batch", batch),
        kv=kv or own,
        dtype=own,
        tokens=None if tokens is None else _amount("--tokens", tokens),
        checkpoints=_positive("--checkpoints-per-layer", checkpoints_per_layer),
        bytes_per_parameter=_positive("--bytes-per-parameter", bytes_per_parameter) or 0.0,
        devices=device_count(devices),
        causal=causal,
        memory=None if memory is None else _bytes(memory),
    )
    return answer_count(run, asked)


def _amount(option: str, value: str | float) -> float:
    """Return a number of tokens from "15T", "4M" or 4e6."""
    try:
        found = parse_count(value) if isinstance(value, str) else float(value)
    except InputError as error:
        raise InputError(f"{option} {error}") from None
    if not 1 <= found <= LARGEST:
        raise InputError(f"{option} {found:g} tokens: from 1 to {LARGEST:g}")
    return found


def _bytes(memory: str | float) -> float:
    """Return the bytes of a device's memory from "96GB" or a number."""
    try:
        found = parse_quantity(memory) if isinstance(memory, str) else float(memory)
    except InputError as error:
        raise InputError(f"--memory {error}") from None
    if not 1 <= found <= LARGEST:  # also no NaN
        raise InputError(f"--memory {found:g} bytes: from 1 to {LARGEST:g}")
    return found


def _positive(option: str, value: float | None) -> float | None:
    if value is not None and not 0 < value <= 1e4:  # also no NaN
        raise InputError(f"{option} {value:g} must be positive, at most 10,000")
    return value
