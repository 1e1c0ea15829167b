"""Blind: AXLearn's SpmdTrainer and its Fuji 7B (version 2, flash attention), 256 GPUs.

Its configuration for 32 nodes of eight H100, untouched: 1024 sequences of 4096, data=32, fsdp=8,
AdamW, float32 weights, steps in bfloat16. Beside it stands "step time: 1.78s/step, MFU 39%".

FLOPs of a token (Touvron et al., arXiv 2307.09288): 32 layers of 2 (4 D^2 + 3 D F) and attention
under its mask, the head 2 V D that is the embedding too: D = 4096, F = 11,008, V = 32,768. Three
times; attention 2 products forward and 5 backward; again, as projections alone are kept: gate and
up, 4 D F, and the forward attention. Weights: 32 (4 D^2 + 3 D F) + V D, without norms; state 12
bytes of each, over fsdp=8. Counted, and committed, before it was priced.
"""

import scaling as sc
from experiments.foreign.programs._axlearn import lowered_step
from experiments.foreign.work import Work

NEEDS = "axlearn"
SOURCE = "apple/axlearn at 34aed43"
L, D, F, V, T, BATCH, GPUS, FSDP = 32, 4096, 11_008, 32_768, 4096, 1024, 256, 8
ATTENTION = 2 * T * D / 2  # a product of scores or values, of a token, under the mask
TOKEN = L * (3 * 2 * (4 * D**2 + 3 * D * F) + 4 * D * F + (2 + 5 + 2) * ATTENTION) + 6 * V * D
WEIGHTS = L * (4 * D**2 + 3 * D * F) + V * D
WORK = Work(BATCH * T / GPUS * TOKEN, state=12 * WEIGHTS / FSDP)


def price() -> sc.Prediction:
    with sc.pretend("dgx-h100", nodes=32):
        lowered = lowered_step("fuji-7B-v2-flash", data=32, fsdp=8, batch=BATCH, length=T)
    return sc.predict_step(lowered, cluster="dgx-h100", nodes=32)
