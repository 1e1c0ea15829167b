"""The size from which a kernel is compute bound: where its FLOPs take as long as its bytes.

matmul       m = w n k / (2 n k W / C - x k - y n)      of the batch, weights of n x k
             m = w C / (2 W)                            where the weights alone count
attention    T = a (x N + z K) C / (r c N W)            of as many queries as keys
"""

from collections.abc import Callable

from scaling.profiles.io import profile_of
from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.kernel_target import KernelTarget, bandwidth_of, peak_of
from scaling.questions.roofline import timed
from scaling.questions.workloads import Work

MOST = 2**24  # the largest size that is tried with fitted figures, chosen by this project
NEVER = "memory at every size: a further row takes longer to move than to compute"


def critical(work: Work, place: KernelTarget, sized: Callable[[float], Work]) -> list[Answer]:
    """Return the critical sizes of a kernel as answers; none for kinds without one.

    Args:
        work: the kernel.
        place: the chip.
        sized: a matmul with another batch.
    """
    if work.kind == "matmul":
        return _of_matmul(work, place, sized)
    if work.kind == "attention":
        return _of_attention(work, place)
    return []


def first_compute_bound(place: KernelTarget, sized: Callable[[float], Work]) -> int | None:
    """Return the size from which the fitted compute time exceeds the memory's and the link's.

    Sizes are doubled until it does, and halved in between: tiles and waves make the efficiency
    jump, so that a larger size may be memory bound once more. None: up to MOST it never does.
    """
    profile = profile_of(place.chip)

    def is_bound(size: int) -> bool:
        cost = timed(sized(float(size)), place, profile)
        return cost.compute >= max(cost.memory, cost.link)

    high = 1
    while not is_bound(high):
        high *= 2
        if high > MOST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_bound(middle) else (middle, high)
    return high


def _of_matmul(work: Work, place: KernelTarget, sized: Callable[[float], Work]) -> list[Answer]:
    given = {i.symbol: i for i in work.inputs}
    W, C, link = bandwidth_of(place), peak_of(work, place), place.link
    below = 2 * given["n"].value * given["k"].value * W.value / C.value
    slower = given["x"].value * given["k"].value + given["y"].value * given["n"].value
    fitted = first_compute_bound(place, sized)
    inputs = [given[name] for name in ("w", "n", "k", "x", "y")] + [W, C]
    formula = "w * n * k / (2 * n * k * W / C - x * k - y * n)"
    if link:
        formula = f"max({formula}, w * C / (2 * P))"
        inputs.append(Input("P", link, "bytes/s", "link"))
    if below > slower:
        exact = by_formula("critical batch", "rows", formula, tuple(inputs), fitted)
    else:
        exact = Answer("critical batch", fitted, "rows", fitted=fitted, ideal_binds=NEVER)
    rate = Input("W", link, "bytes/s", "link") if link else W
    alone = "critical batch by the weights alone"
    return [exact, by_formula(alone, "rows", "w * C / (2 * W)", (given["w"], C, rate))]


def _of_attention(work: Work, place: KernelTarget) -> list[Answer]:
    """Textbook's only: measured efficiencies of short sequences say nothing about the memory."""
    given = {i.symbol: i for i in work.inputs}
    halved = "T / 2" in work.flops
    share = Input("c", 0.5 if halved else 1.0, "", "of the scores that a mask leaves")
    inputs = [given[name] for name in ("a", "x", "N", "z", "K", "r")]
    formula = "a * (x * N + z * K) * C / (r * c * N * W)"
    symbols = (*inputs, share, bandwidth_of(place), peak_of(work, place))
    length = by_formula("critical length of queries and keys", "tokens", formula, symbols)
    inputs = [given[name] for name in ("r", "T", "N", "a", "z", "K")]
    limit = by_formula(
        "intensity of T queries over many keys", "FLOPs/byte", "r * T * N / (a * z * K)",
        tuple(inputs),
    )  # fmt: skip
    return [length, limit]
