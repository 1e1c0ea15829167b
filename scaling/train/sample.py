"""Text from a checkpoint, on one device whatever mesh it was trained on.

Keys and values of earlier tokens are kept (`models.decode`): the prompt is computed at once, then
each token by itself. A window that is full begins again with its later half.
"""

import functools
import math
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp

from scaling.meshes.errors import InputError
from scaling.models.decode import Cache, decode_step, empty_cache
from scaling.models.transformer import Transformer
from scaling.run import Run
from scaling.train.data.chat import END_OF_TURN, render
from scaling.train.data.tokenizer import BYTES, Tokenizer, open_tokenizer
from scaling.train.trained_model import newest_model, run_of_folder

TINY = 1e-6  # temperature that is greedy already


def load_model(folder: Path) -> tuple[Run, Transformer]:
    """The newest checkpoint of a run folder, on the first device.

    Raises:
        InputError: no run.json, no intact checkpoint, not a model of text.
    """
    run = _dropless(run_of_folder(folder))
    tokenizer_of(run)
    return run, newest_model(run, folder)


def tokenizer_of(run: Run) -> Tokenizer:
    """The tokenizer of a run's text.

    Raises:
        InputError: it was trained on ids whose tokenizer the run does not name.
    """
    data, vocab_size = run.train.data, run.model.vocab_size
    files = [data] if isinstance(data, str) else data
    ids = next((file for file in files if file.endswith(".bin")), None)
    if run.train.tokenizer is None and (ids or vocab_size < BYTES.size):
        raise InputError(
            f"{run.name} was trained on tokens of {ids or data!r} (vocab_size {vocab_size}); text "
            "needs train.tokenizer, the tokenizer that made them"
        )
    return open_tokenizer(run.train.tokenizer, vocab_size)


def _dropless(run: Run) -> Run:
    """Experts with room for every token; what is dropped depends on what is computed at once."""
    moe = run.model.moe
    if moe is None:
        return run
    return replace(run, model=replace(run.model, moe=replace(moe, capacity_factor=None)))


def generate(
    model: Transformer,
    prompt: str,
    seq_len: int,
    tokens: int,
    temperature: float,
    seed: int,
    tokenizer: Tokenizer | None = None,
    chat: bool = False,
) -> str:
    """`prompt` continued by `tokens` sampled tokens, fewer where the text or the turn ends.

    A token sees the last `seq_len` at most, and at least half as many where there are so many:
    positions begin at 0 in the window, so the cache of a full one is of no use.

    Args:
        seq_len: window the model was trained with.
        temperature: 0 takes the likeliest token; 1 samples from the model's distribution.
        tokenizer: None: bytes, among which nothing ends the text.
        chat: the prompt is a user's message, and the assistant's answer alone is returned.

    Raises:
        InputError: an empty prompt, a negative temperature or number of tokens.
    """
    if not prompt:
        raise InputError("--prompt is empty; give at least one character")
    if not 0 <= temperature < math.inf or tokens < 0:
        raise InputError(
            f"--temperature {temperature} and --tokens {tokens} must be finite and not negative"
        )
    known = tokenizer or BYTES
    asked = render(known, [{"role": "user", "content": prompt}], answer=True) if chat else prompt
    text = known.encode([asked])[0][0].tolist()
    asked_tokens, stops = len(text), known.special if tokenizer else frozenset()
    turn_end = known.encode([END_OF_TURN])[0][0].tolist()
    with jax.set_mesh(jax.tree.leaves(model)[0].sharding.mesh):
        key, heat = jax.random.key(seed), jnp.float32(temperature)
        cache = empty_cache(model.config, model.execution, 1, seq_len)
        length = cache.layers.keys.shape[2]
        start, new = 0, text[-seq_len:]  # of the window: tokens in the cache, those behind them
        for _ in range(tokens):
            if start + len(new) > seq_len:
                start, new = 0, text[-max(1, seq_len // 2) :]
            padded = jnp.asarray([new if start else new + [0] * (length - len(new))], jnp.int32)
            token, cache, key = _next_token(model, cache, padded, start, len(new) - 1, key, heat)
            start, new = start + len(new), [int(token)]
            if new[0] in stops:
                break
            text += new
            if chat and text[-len(turn_end) :] == turn_end:
                text = text[: -len(turn_end)]
                break
    return known.decode(text[asked_tokens:] if chat else text)


@functools.partial(jax.jit, donate_argnums=1)
def _next_token(
    model: Transformer,
    cache: Cache,
    tokens_1T: jax.Array,
    start: jax.Array,
    last: jax.Array,
    key: jax.Array,
    temperature: jax.Array,
) -> tuple[jax.Array, Cache, jax.Array]:
    """One token sampled behind number `last` of the new ones, which begin at `start`."""
    logits_1TV, cache = decode_step(model, cache, tokens_1T, start)
    logits_V = logits_1TV[0, last]
    key, this = jax.random.split(key)
    sampled = jax.random.categorical(this, logits_V / jnp.maximum(temperature, TINY))
    return jnp.where(temperature > 0, sampled, jnp.argmax(logits_V)), cache, key
