"""Text from a trained model: several prompts at once, on the mesh that holds the model.

Keys and values of earlier tokens are kept (`models.decode`). In each pass every row takes what it
has not computed yet, a chunk of its prompt or its newest token, and draws a token if that was all:

    prompt of 5      chunk of 4   1    new   new   ...
    prompt of 2      chunk of 2   new  new   new   ...

Greedy tokens of a row are those that it would have alone; drawn ones depend on its number too. A
window that is full begins again with its later half.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.errors import InputError, check_range
from scaling.models.decode import Cache, decode_step, empty_cache
from scaling.models.transformer import Transformer
from scaling.run import Run
from scaling.training.data.chat import END_OF_TURN, ask
from scaling.training.data.tokenizer import Tokenizer

TINY = 1e-6  # temperature that is greedy already
# Tokens of a prompt at once. Their scores take 4.3 GB of 8 rows with 32 heads and 8,192 positions.
CHUNK = 512

Stop = Callable[[Sequence[int]], bool]  # True once the new tokens of a row are complete


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn, as Hugging Face's: temperature, then `top_k`, then `top_p`."""

    tokens: int = 200  # new ones, at most
    temperature: float = 0.8  # 0: the likeliest token; 1: the model's distribution
    top_k: int | None = None  # of the likeliest tokens alone
    top_p: float = 1.0  # of the fewest likeliest tokens with this probability in all
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf or self.tokens < 0:
            raise InputError(
                f"--temperature {self.temperature} and --tokens {self.tokens} must be finite and "
                "not negative"
            )
        if not 0 < self.top_p <= 1:
            raise InputError(f"--top-p {self.top_p} must be above 0 and at most 1")
        check_range("--top-k", 1 if self.top_k is None else self.top_k, 1)


def encode_prompts(
    run: Run, prompts: Sequence[str], tokenizer: Tokenizer, chat: bool = False
) -> list[list[int]]:
    """The ids of prompts; with `chat` they are a user's messages, which an answer follows.

    Raises:
        InputError: no prompt, an empty one, or one longer than the model sees.
    """
    if not all(prompts):
        raise InputError("--prompt is empty; give at least one character")
    if not prompts or not all(isinstance(prompt, str) for prompt in prompts):
        raise InputError(f"prompts={prompts} must be texts, one at least")
    if chat:
        prompts = [ask(tokenizer, prompt) for prompt in prompts]
    encoded = [ids.tolist() for ids, _ in tokenizer.encode(prompts)]
    for number, ids in enumerate(encoded, 1):
        if not 0 < len(ids) <= run.batch.seq_len:
            raise InputError(
                f"prompt {number} has {len(ids):,} tokens; the model sees 1 to "
                f"{run.batch.seq_len:,} (--seq-len)"
            )
    return encoded


def generate(
    model: Transformer,
    run: Run,
    prompts: Sequence[list[int]],
    sampling: Sampling,
    tokenizer: Tokenizer,
    chat: bool = False,
) -> list[str]:
    """Each prompt with its continuation, which ends where the text or the turn does.

    Args:
        run: a token sees the last `batch.seq_len` at most; `batch.global_batch` prompts at a time.
        prompts: as `encode_prompts` returns them.
        chat: the continuations alone are returned, the assistant's answers.
    """
    turn_end = tokenizer.encode([END_OF_TURN])[0][0].tolist() if chat else []
    ends_turn = lambda new: chat and list(new[-len(turn_end) :]) == turn_end
    stop = lambda new: new[-1] in tokenizer.special or ends_turn(new)
    texts = []
    for prompt, new in zip(prompts, continued(model, run, prompts, sampling, stop), strict=True):
        if ends_turn(new):
            new = new[: -len(turn_end)]
        elif new and new[-1] in tokenizer.special:
            new = new[:-1]
        texts.append(tokenizer.decode(new if chat else prompt + new))
    return texts


def continued(
    model: Transformer, run: Run, prompts: Sequence[Sequence[int]], sampling: Sampling, stop: Stop
) -> list[list[int]]:
    """The new tokens of each prompt, with the one that `stop` ends it at."""
    seq_len, shards = run.batch.seq_len, model.execution.rules.mesh.batch_shards
    assert all(0 < len(prompt) <= seq_len for prompt in prompts)
    rows = [_Row(n, list(prompt), list(prompt)) for n, prompt in enumerate(prompts)]
    at_once = min(run.batch.global_batch, -(-len(rows) // shards) * shards)
    length = min(seq_len, max(map(len, prompts), default=0) + sampling.tokens)
    with jax.set_mesh(jax.tree.leaves(model)[0].sharding.mesh):
        for first in range(0, len(rows), at_once) if sampling.tokens else ():
            _continue(model, length, rows[first : first + at_once], at_once, sampling, stop)
    return [row.text[len(prompt) :] for row, prompt in zip(rows, prompts, strict=True)]


@dataclass
class _Row:
    number: int
    text: list[int]  # prompt and new tokens
    pending: list[int]  # of them, those that the cache does not have yet
    start: int = 0  # tokens in the cache
    drawn: int = 0
    ended: bool = False
    fed: list[int] = field(default_factory=list)  # in the current pass


class _Pass(NamedTuple):
    """Inputs of one pass: B rows of T tokens."""

    tokens_BT: jax.Array
    start_B: jax.Array
    last_B: jax.Array  # place of the last token that is no padding
    number_B: jax.Array
    drawn_B: jax.Array


def _continue(
    model: Transformer, length: int, rows: list[_Row], size: int, sampling: Sampling, stop: Stop
) -> None:
    """Draw tokens until all rows have ended, in windows of `length`, `size` rows at once."""
    cache = empty_cache(model.config, model.execution, size, length)
    # A batch is filled up with rows that have ended.
    spare = [_Row(0, [], [], ended=True) for _ in range(size - len(rows))]
    heat, top_p = jnp.float32(sampling.temperature), jnp.float32(sampling.top_p)
    top_k = jnp.int32(min(sampling.top_k or model.config.vocab_size, model.config.vocab_size))
    settings = jax.random.key(sampling.seed), heat, top_k, top_p
    while not all(row.ended for row in rows):
        for row in rows:
            if row.start + len(row.pending) > length:  # the window is full
                row.start, row.pending = 0, row.text[-max(1, length // 2) :]
        width = 1 if max(len(r.pending) for r in rows if not r.ended) == 1 else min(CHUNK, length)
        now = _next_pass(model, [*rows, *spare], width)
        token_B, cache = _next_tokens(model, cache, now, settings)
        for row, token in zip(rows, np.asarray(token_B).tolist(), strict=False):
            row.start += len(row.fed)
            row.pending = row.pending[len(row.fed) :]
            if not row.ended and not row.pending:
                row.text.append(token)
                row.pending, row.drawn = [token], row.drawn + 1
                row.ended = row.drawn == sampling.tokens or stop(row.text[-row.drawn :])


def _next_pass(model: Transformer, rows: list[_Row], width: int) -> _Pass:
    """The next `width` tokens of each row that has not ended, on the mesh."""
    for row in rows:
        row.fed = [] if row.ended else row.pending[:width]
    tokens_BT = np.array([row.fed + [0] * (width - len(row.fed)) for row in rows], np.int32)
    last = [max(0, len(row.fed) - 1) for row in rows]
    start, number, drawn = zip(*((row.start, row.number, row.drawn) for row in rows), strict=True)
    numbers = (np.array(x, np.int32) for x in (start, last, number, drawn))
    cut, mesh = model.execution.spec("batch"), jax.sharding.get_mesh()
    shardings = tuple(jax.NamedSharding(mesh, spec) for spec in (cut, cut, cut, P(), P()))
    return _Pass(*jax.device_put((tokens_BT, *numbers), shardings))


@functools.partial(jax.jit, donate_argnums=1)
def _next_tokens(
    model: Transformer, cache: Cache, now: _Pass, sampling: tuple[jax.Array, ...]
) -> tuple[jax.Array, Cache]:
    """A token drawn behind the last one of each row, int32 [B] on every device; the longer cache.

    The randomness of a row is its own: of the seed, its number and the tokens drawn before.
    """
    key, temperature, top_k, top_p = sampling
    x_BTD, cache = decode_step(model, cache, now.tokens_BT, now.start_B)
    is_last_BT = jnp.arange(x_BTD.shape[1]) == now.last_B[:, None]
    x_B1D = jnp.where(is_last_BT[..., None], x_BTD, 0).sum(axis=1, keepdims=True)
    logits_BV = reshard(model.logits(x_B1D)[:, 0], P())

    def draw(logits_V: jax.Array, number: jax.Array, drawn: jax.Array) -> jax.Array:
        own = jax.random.fold_in(jax.random.fold_in(key, number), drawn)
        kept_V = _likeliest(logits_V / jnp.maximum(temperature, TINY), top_k, top_p)
        return jax.random.categorical(own, kept_V)

    sampled_B = jax.vmap(draw)(logits_BV, now.number_B, now.drawn_B)
    return jnp.where(temperature > 0, sampled_B, jnp.argmax(logits_BV, axis=-1)), cache


def _likeliest(logits_V: jax.Array, top_k: jax.Array, top_p: jax.Array) -> jax.Array:
    """Logits with -inf for all but the `top_k` likeliest tokens, and of these but the fewest
    likeliest with `top_p` of their probability."""
    falling_V = jnp.sort(logits_V, descending=True)
    falling_V = jnp.where(jnp.arange(len(falling_V)) < top_k, falling_V, -jnp.inf)
    p_V = jax.nn.softmax(falling_V)
    kept_V = (jnp.cumsum(p_V) - p_V < top_p) | (top_p >= 1)  # whose sum may be rounded up to 1
    least = jnp.where(kept_V & (falling_V > -jnp.inf), falling_V, jnp.inf).min()
    return jnp.where(logits_V >= least, logits_V, -jnp.inf)
