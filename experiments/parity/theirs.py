"""Models of Hugging Face's transformers: made from a seed, saved, loaded, run. Needs torch."""

from pathlib import Path

import numpy as np
import torch
import transformers

from experiments.parity.families import FAMILIES, LONGEST, VOCABULARY

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
SCALE = 0.3  # of random matrices: scores and gates far from even
SEQUENCES = 4


def make(family: str, seed: int, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """A random model in `folder`; random tokens [B, S] and the model's logits [B, S, V].

    Every tensor is random, norms, biases and the router's bias included.
    """
    draw = np.random.default_rng(seed)
    config = transformers.AutoConfig.for_model(family, **FAMILIES[family](draw))
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    with torch.no_grad():
        for name, tensor in sorted(tensors.items()):
            if name.endswith(("weight", "bias", "proj", "gate_up_proj", "down_proj", "sinks")):
                noise = torch.from_numpy(draw.standard_normal(tuple(tensor.shape)))
                tensor.copy_(SCALE * noise + (1.0 if "norm" in name or ".ln_" in name else 0.0))
    model.save_pretrained(folder)
    tokens = draw.integers(VOCABULARY, size=(SEQUENCES, LONGEST))
    return tokens, _logits(model, tokens)


def load(folder: Path, tokens: np.ndarray) -> np.ndarray:
    """The logits of the model in a folder."""
    kind = transformers.AutoModelForCausalLM
    model, said = kind.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    wrong = {what: names for what, names in said.items() if names}
    assert not wrong, wrong
    return _logits(model, tokens)


def _logits(model: torch.nn.Module, tokens: np.ndarray) -> np.ndarray:
    """In float64 but for what the library rounds to float32, whose own rounding reached 1.7e-5 of
    the largest logit (gemma3_text, seed 2; transformers 5.24)."""
    model.set_experts_implementation("eager")  # torch's grouped products take no float64
    model.double().eval()
    with torch.no_grad():
        return model(torch.from_numpy(tokens)).logits.float().numpy()
