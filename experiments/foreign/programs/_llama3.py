"""What the programs of jax-llm-examples share: Llama 3 8B, tensor-parallel over 8 GPUs in bf16.

Weights of a layer: 2 D^2 (queries, output) + 2 D G K (keys, values) + 3 D F
(Dubey et al., arXiv 2407.21783, table 3).
"""

import jax
from jax.sharding import AxisType
from llama3_jax import model as llama

L, D, H, G, K, F, V, GPUS = 32, 4096, 32, 8, 128, 14_336, 128_256, 8
WEIGHTS = L * (2 * D**2 + 2 * D * G * K + 3 * D * F)


def config(length: int) -> llama.Config:
    """Return the repository's configuration, its caches of `length` tokens."""
    mesh = jax.make_mesh((1, GPUS, 1), ("x", "y", "z"), axis_types=(AxisType.Explicit,) * 3)
    return llama.Config(
        embed=D, ffw_size=F, q_heads=H, kv_heads=G, num_layers=L, head_dim=K, vocab_size=V,
        max_seq_len=length, causal=True, use_prefill_attn_kernel=False,
        use_decode_attn_kernel=False, quant_layer=False, quant_cache=False, mesh=mesh,
    )  # fmt: skip


def state(length: int, batch: int) -> tuple[llama.Config, llama.Weights, llama.KVCache]:
    """Return configuration, weights and cache as the repository makes them."""
    made, key = config(length), jax.random.key(0)
    return made, llama.Weights.init(key, made), llama.KVCache.init(key, made, batch)
