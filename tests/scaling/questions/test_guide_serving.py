"""Numbers that the guide prints on serving and on whole trainings, asked of our functions.

A tolerance is what the guide's rounded inputs bring in. Chips have 16 GB and 820 GB/s as it rounds
them (Google's pages: 16 GiB, 819 GB/s), a v5p 96 GB.
"""

import pytest

import scaling as sc
from scaling.questions.answer import Answer, textbook

V5E = {"cluster": "tpu-v5e", "overrides": {"memory": 16e9, "memory_bandwidth": 8.2e11}}
V5P = {"cluster": "tpu-v5p", "overrides": {"memory": 96e9}}
SMALL = {  # questions 1 to 5 of the chapter on inference
    "vocab_size": 32_128,
    "d_model": 4096,
    "n_layers": 64,
    "n_heads": 32,
    "n_kv_heads": 8,
    "head_dim": 256,
    "d_ff": 16_384,
    "mlp": "swiglu",
    "tied_embeddings": True,
}


def shape(**more: object) -> dict[str, object]:
    """A model of those questions, as settings of the run custom."""
    return {"set": {f"model.{key}": value for key, value in (SMALL | more).items()}}


INT8 = {"weights": "int8", "kv": "int8"}
EXPERTS = shape(moe={"n_experts": 16, "experts_per_token": 2})
LONG = {"batch": 32, "prompt": 8192, "generate": 4096}
SERVED = [  # model, arguments, part, the guide's number, tolerance
    ("llama2-13b", {"devices": 8, "batch": 1, "context": 8192}, "", 4.98e-3, 3e-3),
    ("llama2-13b", {"devices": 8, "batch": 240, "context": 8192}, "", 249.09e-3, 3e-3),
    ("llama2-13b", {"devices": 8, "batch": 240, "context": 8192}, "tokens/s", 963.5, 3e-3),
    ("llama2-13b", {"devices": 8, "context": 8192}, "KV cache of a sequence", 6.7e9, 3e-3),
    ("custom", shape() | INT8, "weights", 18.4e9, 2e-3),
    ("custom", shape() | INT8, "KV cache of a token", 262e3, 2e-3),
    ("custom", shape() | INT8 | {"context": 128_000}, "largest batch", 7, 0),
    ("custom", shape(n_kv_heads=1) | INT8 | {"context": 128_000}, "largest batch", 56, 0),
    ("custom", shape() | INT8, "reading all weights from memory", 1.4e-3, 3e-3),
    ("custom", EXPERTS, "critical batch of the experts", 1920, 2e-3),
    ("custom", EXPERTS | {"weights": "int8"}, "weights", 212e9, 3e-3),
    ("custom", shape(), "devices from which weights are better cut along D and F", 72, 0),
    ("custom", shape(), "constant c of 2D sharding", 11.3, 2e-3),
    ("custom", shape() | {"devices": 8}, "bytes of a sum below which its hops decide", 360e3, 0),
    ("llama3-70b", INT8, "KV cache of a token", 160e3, 0.03),
    ("llama3-70b", INT8 | {"context": 32_768, "batch": 240}, "KV cache of the batch", 1.3e12, 0.03),
    ("llama3-70b", INT8 | {"devices": 8, "batch": 32, "context": 8192}, "", 17e-3, 0.03),
    ("llama3-70b", INT8 | {"batch": 32, "context": 8192}, "", 8.5e-3, 0.03),
    ("llama3-70b", {"batch": 32, "prompt": 8192, "mfu": 0.4}, "prefill", 0.91, 0.01),
    (
        "llama3-70b",
        LONG,
        "tokens evicted in a step",
        96,
        0,
    ),
    (
        "llama3-70b",
        {"devices": 8, "batch": 32},
        "beta, memory over links",
        8,
        0.01,
    ),
    ("llama3-8b", {"devices": 8}, "FLOPs for a dollar", 5.91e17, 1e-3),
]


@pytest.mark.parametrize(("model", "case", "part", "expected", "tolerance"), SERVED)
def test_serving(model, case, part, expected, tolerance):
    found = ideal(sc.serve(model, **V5E, **({"devices": 16} | case)), part)
    assert found == pytest.approx(expected, rel=tolerance or 1e-9)


LLAMA = {"parameters": 70e9, "tokens": "15T"}
POD = {**LLAMA, **V5P, "mfu": 0.5}
DEEPSEEK = {"parameters": "671B", "active": "37B", "tokens": "14.8T", "device_hours": "2.79M"}
TRAINED = [
    ({**LLAMA, "devices": 4096, "mfu": 0.45}, "training", 40 * 86_400, 2e-3),
    ({**LLAMA, "devices": 4096, "mfu": 0.45}, "FLOPs", 6.3e24, 1e-9),
    ({**LLAMA, "mfu": 0.45}, "fewest devices for weights and optimizer", 9, 0),
    ({**POD, "batch": "16M", "tokens_per_device": 850.0}, "training", 17 * 86_400, 0.01),
    ({**POD, "batch": "40M", "tokens_per_device": 850.0}, "slices", 5, 0.06),
    (POD, "largest model of one device", 9.6e9, 0),
    ({**DEEPSEEK, "compute": "fp8", "overrides": {"peak_fp8": 1.513e15}}, "MFU", 0.217, 5e-3),
    ({**POD, "devices": 35_840, "batch": "4Mi"}, "tokens of a device", 117.03, 1e-4),
    ({**POD, "devices": 35_840, "batch": "4Mi"}, "tokens of a slice", 2**20, 0),
]


@pytest.mark.parametrize(("case", "part", "expected", "tolerance"), TRAINED)
def test_trainings(case, part, expected, tolerance):
    found = ideal(sc.budget(**case), part)
    assert found == pytest.approx(expected, rel=tolerance or 1e-9)


def ideal(answer: Answer, part: str) -> float:
    """The textbook's number of an answer, or of one of its parts."""
    given = textbook(answer)
    return float(given if part in ("", given.name) else given[part])
