"""The number of chunks in which a device makes the logits of its tokens.

    4 bytes x tokens x vocabulary, of one device     16.8 GB of llama3-1b's 8 x 4096 tokens

Chunks cost a sum of the head's gradient each, which they read and write once more.
"""

from functools import lru_cache

from scaling.models.accounting.matrices import BYTES

# Bytes of the float32 logits that a device makes at a time (assumed: on H100 twice as much makes
# the step of Llama 3 8B no faster, and half as much saves it 1 % of its memory).
LARGEST_LOGITS = 2**30


def loss_chunks(tokens: float, vocab: float) -> int:
    """The least number of equal chunks with logits of at most `LARGEST_LOGITS`.

    1 where no number up to twice the least divides the tokens.

    Args:
        tokens: of one microbatch on one device.
        vocab: columns of the logits there.
    """
    return _chunks(int(tokens), BYTES["fp32"] * int(vocab), LARGEST_LOGITS)


@lru_cache(maxsize=4096)
def _chunks(tokens: int, row: int, most: int) -> int:
    least = -(-tokens * row // most)
    return next((n for n in range(least, 2 * least + 1) if tokens % n == 0), 1)
