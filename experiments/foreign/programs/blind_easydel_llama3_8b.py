"""Blind: EasyDeL's training step of Llama 3 8B, bf16 throughout, fsdp=8, 8 sequences of 4096.

The package's model, partition rules and step, AdamW; attention by its "vanilla", layers
checkpointed with nothing saved.

FLOPs of a token (Dubey et al., arXiv 2407.21783, table 3: 32 layers, D = 4096, F = 14,336, 8 of 32
heads hold keys and values, V = 128,256): 2 (2 D^2 + 2 D 1024 + 3 D F) and 4 T D a layer over all
scores, masked later; three times, and again, but for the last product, 2 D F; the head 2 V D three
times. State: weights, and two moments, of 2 bytes, over 8 GPUs; the embedding is not the head.
Counted, and committed, before it was priced.
"""

import easydel

import scaling as sc
from experiments.foreign.programs._easydel import training
from experiments.foreign.work import Work

NEEDS = "easydel"
L, D, F, G, V, T, ROWS, GPUS = 32, 4096, 14_336, 1024, 128_256, 4096, 8, 8
WEIGHTS = 2 * D**2 + 2 * D * G + 3 * D * F
TOKEN = L * (4 * (2 * WEIGHTS + 4 * T * D) - 2 * D * F) + 3 * 2 * V * D
WORK = Work(ROWS * T / GPUS * TOKEN, state=6 * (L * WEIGHTS + 2 * V * D) / GPUS)


def price() -> sc.Prediction:
    with sc.pretend("dgx-h100"):
        config = easydel.LlamaConfig(
            hidden_size=D, intermediate_size=F, num_hidden_layers=L, num_attention_heads=32,
            num_key_value_heads=8, vocab_size=V, max_position_embeddings=T,
            sharding_axis_dims=(1, -1, 1, 1, 1), attn_mechanism="vanilla",
            gradient_checkpointing="nothing_saveable",
        )  # fmt: skip
        mesh, step, arguments = training(easydel.LlamaForCausalLM, config, ROWS, T)
        with mesh:
            return sc.predict_step(step, *arguments, cluster="dgx-h100")
