"""The models that are compared, in PyTorch as its users write them: GPT-2 and Llama shapes.

The same parameters as in `models`, number by number (a test counts them). Attention is
`scaled_dot_product_attention`, which picks flash attention on GPUs.
"""

# Dims: B batch, S sequence, D model, N query heads, M key/value heads, K head, V vocabulary

import torch
import torch.nn.functional as F
from torch import nn

from scaling.models.config import ModelConfig


class Attention(nn.Module):
    """Causal self-attention, with grouped key/value heads and rotary positions or without."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.heads = config.n_heads, config.n_kv_heads, config.n_kv_heads
        self.K, self.rotary = config.head_dim, config.positions == "rope"
        self.qkv = nn.Linear(config.d_model, sum(self.heads) * self.K, bias=config.bias)
        self.out = nn.Linear(config.n_heads * self.K, config.d_model, bias=config.bias)

    def forward(self, x_BSD: torch.Tensor, turn: torch.Tensor | None) -> torch.Tensor:
        B, S, _ = x_BSD.shape
        parts = self.qkv(x_BSD).split([n * self.K for n in self.heads], dim=-1)
        q, k, v = (part.view(B, S, -1, self.K).transpose(1, 2) for part in parts)
        if turn is not None:
            q, k = rotated(q, turn), rotated(k, turn)
        grouped = self.heads[0] != self.heads[1]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        return self.out(y.transpose(1, 2).reshape(B, S, -1))


class Mlp(nn.Module):
    """SwiGLU with both inputs in one product, or GELU."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.gated = config.is_gated
        self.up = nn.Linear(config.d_model, (1 + self.gated) * config.d_ff, bias=config.bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)

    def forward(self, x_BSD: torch.Tensor) -> torch.Tensor:
        h = self.up(x_BSD)
        if self.gated:
            gate, h = h.chunk(2, dim=-1)
            return self.down(F.silu(gate) * h)
        return self.down(F.gelu(h, approximate="tanh"))


class Block(nn.Module):
    """Attention and MLP, each behind its norm and beside a residual."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norms = nn.ModuleList([norm(config), norm(config)])
        self.attention, self.mlp = Attention(config), Mlp(config)

    def forward(self, x_BSD: torch.Tensor, turn: torch.Tensor | None) -> torch.Tensor:
        x_BSD = x_BSD + self.attention(self.norms[0](x_BSD), turn)
        return x_BSD + self.mlp(self.norms[1](x_BSD))


class Transformer(nn.Module):
    """Tokens [B, S] and targets [B, S] to the mean loss."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.d_model)
        learned = config.positions == "learned"
        self.positions = nn.Embedding(config.max_positions, config.d_model) if learned else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = norm(config)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)  # GPT-2's
        if config.tied_embeddings:
            self.head.weight = self.tokens.weight

    def forward(self, tokens_BS: torch.Tensor, targets_BS: torch.Tensor) -> torch.Tensor:
        S = tokens_BS.shape[1]
        x_BSD, turn = self.tokens(tokens_BS), None
        if self.positions is not None:
            x_BSD = x_BSD + self.positions(torch.arange(S, device=tokens_BS.device))
        if self.config.positions == "rope":
            turn = angles(S, self.config, tokens_BS.device)
        for block in self.blocks:
            x_BSD = block(x_BSD, turn)
        logits = self.head(self.norm(x_BSD))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets_BS.flatten())


def norm(config: ModelConfig) -> nn.Module:
    if config.norm == "layernorm":
        return nn.LayerNorm(config.d_model, config.norm_eps)
    return nn.RMSNorm(config.d_model, config.norm_eps)


def angles(S: int, config: ModelConfig, device: torch.device) -> torch.Tensor:
    """cos and sin of every position and pair of dimensions: [2, S, K/2]."""
    half = torch.arange(0, config.head_dim, 2, device=device) / config.head_dim
    turns = torch.outer(torch.arange(S, device=device), config.rope_theta**-half)
    return torch.stack([turns.cos(), turns.sin()])


def rotated(x_BNSK: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Halves of each head turned by the position's angles."""
    a, b = x_BNSK.chunk(2, dim=-1)
    cos, sin = turn.to(x_BNSK.dtype)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
