"""Blind: EasyDeL's training step of Qwen3 4B, bf16 throughout, fsdp=4 and tp=2, 16 x 2048 tokens.

The package's model, partition rules and step, AdamW; attention by its "vanilla", no checkpoints.

FLOPs of a token as in blind_tunix_qwen3 (36 layers of 2 (D (32 + 2 x 8) 128 + 32 x 128 D + 3 D F)
and 4 T 32 x 128 over all scores, the head 2 V D: D = 2560, F = 9728, V = 151,936), three times,
over 8 GPUs. State: weights, and two moments, of 2 bytes, over 8 GPUs; the embedding is the head.
Counted, and committed, before it was priced.
"""

import easydel

import scaling as sc
from experiments.foreign.programs._easydel import training
from experiments.foreign.work import Work

NEEDS = "easydel"
L, D, F, V, T, ROWS, GPUS = 36, 2560, 9728, 151_936, 2048, 16, 8
WEIGHTS = D * (32 + 2 * 8) * 128 + 32 * 128 * D + 3 * D * F
TOKEN = 3 * (L * (2 * WEIGHTS + 4 * T * 32 * 128) + 2 * V * D)
WORK = Work(ROWS * T / GPUS * TOKEN, state=6 * (L * WEIGHTS + V * D) / GPUS)


def price() -> sc.Prediction:
    with sc.pretend("dgx-h100"):
        config = easydel.Qwen3Config(
            hidden_size=D, intermediate_size=F, num_hidden_layers=L, num_attention_heads=32,
            num_key_value_heads=8, head_dim=128, vocab_size=V, max_position_embeddings=T,
            tie_word_embeddings=True, sharding_axis_dims=(1, -1, 1, 2, 1), attn_mechanism="vanilla",
        )  # fmt: skip
        mesh, step, arguments = training(easydel.Qwen3ForCausalLM, config, ROWS, T)
        with mesh:
            return sc.predict_step(step, *arguments, cluster="dgx-h100")
