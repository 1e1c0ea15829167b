"""All commands, by what they are for, and those whose options are a function's parameters."""

from collections.abc import Mapping

from scaling.cli.generated import Generated

GROUPS: Mapping[str, tuple[str, ...]] = {  # in this order in the help
    "run a model": ("train", "eval", "sample", "export", "compare", "calibrate"),
    "predict a step": (
        *("predict", "plan", "price", "collective", "config", "sharding", "cluster"),
    ),
    "ask about a model, a chip or a mesh": (
        *("limits", "serve", "count", "budget", "chip", "kernel", "array"),
    ),
    "learn": ("learn", "testbed"),
}
QUESTION = "scaling.cli.show:answer"
GENERATED: Mapping[str, Generated] = {
    "limits": Generated(
        "limits", "scaling limits llama3-70b --cluster dgx-h100 --nodes 128", ("run",), QUESTION
    ),
    "serve": Generated(
        "serve",
        "scaling serve llama3-70b --cluster dgx-h100 --batch 32 --context 8192 --weights int8",
        ("model",),
        QUESTION,
    ),
    "count": Generated(
        "count",
        "scaling count llama3-70b --seq-len 8192 --kv int8 --tokens 15T",
        ("model",),
        QUESTION,
    ),
    "budget": Generated(
        "budget",
        "scaling budget llama3-70b --tokens 15T --cluster dgx-h100 --nodes 512 --mfu 0.45",
        ("model",),
        QUESTION,
    ),
    "chip": Generated("chip", "scaling chip h100-sxm", ("name",), "scaling.cli.show:chip"),
    "kernel": Generated(
        "kernel",
        "scaling kernel matmul 512,8192,4096 --dtype fp16 --accelerator b200-sxm",
        ("kind", "sizes"),
        QUESTION,
        flags={"source": "from"},
    ),
    "array": Generated(
        "array",
        'scaling array "A[I_X,J] -> A[I,J]" --mesh X=8 --shape I=1024,J=4096 --cluster dgx-h100',
        ("expression",),
    ),
}
