"""The kernels that are checked, as plain data: attention of five models, products and experts of
two each.

Two sizes of each: one whose float32 reference stores all scores, one that is timed.
"""

from dataclasses import dataclass
from typing import Literal

# Largest difference from the float32 reference over its largest entry. bf16 has 8 bits, so one
# rounding is 2^-9 = 0.2 %; attention rounds probabilities and gradients once more on the way.
ATTENTION_TOLERANCE, PRODUCT_TOLERANCE = 2e-2, 1e-2


@dataclass(frozen=True)
class AttentionCase:
    """Causal attention in bf16, B sequences of T tokens."""

    heads: int
    kv_heads: int
    keys: int  # length of a head's keys
    values: int
    timed: tuple[int, int]  # B, T
    how: Literal["causal", "documents", "ring"] = "causal"
    window: int | None = None
    checked: tuple[int, int] = (2, 1024)  # B, T

    tolerance = ATTENTION_TOLERANCE


@dataclass(frozen=True)
class ProductCase:
    """Rows of `groups` experts, each multiplied with its expert's matrix, in bf16."""

    groups: int
    inputs: int
    outputs: int
    rows: int  # under an even load

    tolerance = PRODUCT_TOLERANCE


@dataclass(frozen=True)
class ExpertsCase:
    """The experts' MLPs of one device on tokens of bf16, `choices` experts each."""

    groups: int
    model: int
    hidden: int
    tokens: int
    choices: int
    kind: str = "swiglu"
    has_bias: bool = False

    tolerance = ATTENTION_TOLERANCE  # the activation is rounded on the way


KERNELS: dict[str, AttentionCase | ProductCase | ExpertsCase] = {
    "attention causal 128": AttentionCase(32, 8, 128, 128, (1, 8192)),  # Llama 3 8B
    "products mixtral": ProductCase(8, 4096, 14336, 16384),  # 8,192 tokens, 2 experts of each
    "products deepseek-v3": ProductCase(32, 7168, 2048, 32768),  # 32 of 256 experts, 8 x 4,096 x 8
    "experts mixtral": ExpertsCase(8, 4096, 14336, 8192, 2),
    "experts gpt-oss": ExpertsCase(32, 2880, 2880, 8192, 4, "clamped_swiglu", has_bias=True),
    "attention causal 64": AttentionCase(12, 12, 64, 64, (32, 1024)),  # GPT-2
    "attention 192 and 128": AttentionCase(128, 128, 192, 128, (1, 4096)),  # DeepSeek-V3
    "attention documents": AttentionCase(
        32, 8, 128, 128, (1, 8192), "documents", checked=(1, 1024)
    ),
    "attention ring": AttentionCase(32, 8, 128, 128, (1, 8192), "ring"),
    "attention window": AttentionCase(32, 8, 128, 128, (1, 8192), window=512),
}
TINY_KERNELS = ("products mixtral", "experts gpt-oss", "attention documents", "attention ring")
TINY_ATTENTION, TINY_PRODUCTS = (1, 32), (4, 32, 64, 64)  # B, T; groups, inputs, outputs, rows
TINY_EXPERTS = 4, 32, 64, 64, 2  # groups, model, hidden, tokens, choices
