"""What a model costs by counting."""

from scaling.api.inputs import amount, device_count
from scaling.api.public_api import entrance
from scaling.api.runs import RunLike, Settings, load_run, parse_settings
from scaling.meshes.errors import InputError, nearest, whole_number
from scaling.models.accounting.matrices import BYTES, STORED_BYTES
from scaling.questions.answer import Answer
from scaling.questions.count import CountQuery
from scaling.questions.count import count as answer_count


@entrance
def count(
    model: RunLike,
    *,
    set: Settings | None = None,
    batch: float | str | None = None,
    seq_len: int | None = None,
    dtype: str | None = None,
    kv: str | None = None,
    tokens: float | str | None = None,
    checkpoints_per_layer: float | None = None,
    bytes_per_parameter: float = 10,
    devices: int = 1,
    causal: bool = False,
    memory: float | str | None = None,
) -> Answer:
    """Return the parameters of a model by part, with its FLOPs, caches, memory and training.

    >>> import scaling as sc
    >>> answer = sc.count("llama3-70b", kv="int8")
    >>> answer.answer, answer["KV cache of a token"].answer
    (70553706496, 163840.0)

    Args:
        model: a recipe's name, run.json, a Hugging Face config.json, or custom with all shapes in
            `set`.
        batch: tokens of a step, such as 4M; None: the recipe's.
        seq_len: tokens of a sequence, the context of attention; None: the recipe's.
        dtype: format of activations; None: that of the run's computation.
        kv: format of the KV cache; None: as activations.
        tokens: tokens of the whole training, such as 15T; None: 20 a parameter.
        checkpoints_per_layer: tensors of width d_model that a layer keeps for its backward pass.
        bytes_per_parameter: bytes of weights and optimizer; 10, 12, 16 and 18 are usual.
        devices: devices that share weights, optimizer and activations evenly.
        causal: half of the attention's scores count.
        memory: bytes of a device, such as 96GB: how many devices weights, optimizer and activations
            fill.

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
    dtype = dtype or run.precision.between
    kv = kv or dtype
    for option, name, formats in (("--dtype", dtype, BYTES), ("--kv", kv, STORED_BYTES)):
        if name not in formats:
            raise InputError(f"{option} {name!r} is no format; {nearest(name, formats)}")
    query = CountQuery(
        tokens_per_step=amount("--batch", batch, least=1) or run.batch.tokens,
        kv=kv,
        dtype=dtype,
        tokens=amount("--tokens", tokens, least=1),
        checkpoints=amount("--checkpoints-per-layer", checkpoints_per_layer, most=1e4),
        bytes_per_parameter=amount("--bytes-per-parameter", bytes_per_parameter, most=1e4) or 0.0,
        devices=device_count(devices),
        causal=causal,
        memory=amount("--memory", memory, "B", least=1),
    )
    return answer_count(run, query)
