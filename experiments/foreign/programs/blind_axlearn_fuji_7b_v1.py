"""Blind: AXLearn's Fuji 7B (version 1, attention in XLA), 256 GPUs, 2048 sequences of 2048.

Its configuration for 32 nodes of eight H100, untouched; beside it stands "2.44s" for 256 GPUs.

FLOPs of a token as in blind_axlearn_fuji_7b, T = 2048, with attention over all scores, masked
later: a product is 2 T D, 2 of them forward, 4 backward, and the scores again: what attention
gives is kept, with the projections. Weights and state as there. Counted, and committed, before it
was priced.
"""

import scaling as sc
from experiments.foreign.programs._axlearn import lowered_step
from experiments.foreign.work import Work

NEEDS = "axlearn"
SOURCE = "apple/axlearn at 34aed43"
L, D, F, V, T, BATCH, GPUS, FSDP = 32, 4096, 11_008, 32_768, 2048, 2048, 256, 8
ATTENTION = 2 * T * D
TOKEN = L * (3 * 2 * (4 * D**2 + 3 * D * F) + 4 * D * F + (2 + 4 + 1) * ATTENTION) + 6 * V * D
WEIGHTS = L * (4 * D**2 + 3 * D * F) + V * D
WORK = Work(BATCH * T / GPUS * TOKEN, state=12 * WEIGHTS / FSDP)


def price() -> sc.Prediction:
    with sc.pretend("dgx-h100", nodes=32):
        lowered = lowered_step("fuji-7B-v1", data=32, fsdp=8, batch=BATCH, length=T)
    return sc.predict_step(lowered, cluster="dgx-h100", nodes=32)
