"""What each parameter of a public function means: `Args:` of its docstring, or one text for all.

A function describes what is its own. What many functions take is described here, once:
`described` adds it to their docstrings, where `help` shows it, and the command line
(scaling.cli.generated) shows the same texts.
"""

import inspect
import re
import textwrap
from collections.abc import Mapping
from typing import Any

SHARED: Mapping[str, str] = {
    "run": "recipe name, `file.py:function`, run.json, its folder, or a Hugging Face config.json, "
    "or a mapping, or a Run.",
    "cluster": "catalogue name (`scaling cluster list`) or TOML file, or a Cluster; None: the "
    "run's.",
    "nodes": "number of hosts; None: the run's, else 1.",
    "mesh": "axis sizes such as data=2,fsdp=4; replaces the run's mesh; None: the run's, else all "
    "devices are fsdp.",
    "set": "any value of run.json by dotted key, such as batch.microbatches=8, or a mapping. 8k is "
    "8,000 and 8Ki 8,192, here and wherever a number stands.",
    "device_order": "axes joined by commas, outermost first; the last has neighbouring devices. "
    "Axes that are not named follow in default order.",
    "overrides": "a figure of the cluster or its chip, such as nic_bandwidth=400Gb/s, "
    "node_network_bandwidth=3200Gb/s (all NICs of a node) or memory=40GB, or a mapping.",
    "options": "an option of XLA, such as xla_gpu_enable_triton_gemm=false, or a mapping; before "
    "those of jax.jit, of XLA_FLAGS, and of this project.",
    "what_if": 'change a figure, such as "network x2", or "network=100Gb/s" of each NIC: nvlink, '
    "xgmi, ici, pcie, network, oversubscription (of leaf switches), latency, peak, memory, "
    "memory_bandwidth, launch; network xinf and latency x0 are free.",
    "measured": "bandwidths that were measured in a job, which override the model by level and "
    "size: a file of what nccl-tests prints, or JSON as of `scaling calibrate --network`, or "
    "a sequence; None: those of the run's cluster, where it states any.",
    "calibration": "file of `scaling calibrate` to price with, or a Profile.",
    "batch": "sequences at once on the whole mesh; None: on each device as many as in a microbatch "
    "of training, or 4,096 tokens.",
    "seq_len": "tokens that the model sees at most; None: as in training, and of a Hugging Face "
    "model 2,048, its learned positions, or its recipe's.",
    "weights": "parameters of the last step, or their running mean; None: the mean with train.ema.",
    "devices": "number of fake host devices, where no accelerator is present.",
    "run_dir": "folder of a run, or of a Hugging Face model with safetensors.",
    "compute": "format of the products, one that the chip multiplies; None: bf16, or its first.",
    "price": "dollars for an hour of a device; None: of the dated table, where it has the chip.",
    "price_kind": "kind of the table's price; None: on demand where it is known of the chip.",
    "mtbf_hours": "hours between two failures of one device; None: as in Llama 3's training.",
    "save_seconds": "seconds of a checkpoint; None: all of the state at 2 TB/s.",
    "restart_seconds": "seconds from a failure until the job trains again.",
    "pue": "power of the building over that of its machines; None: 1.32, between 1.1 and 1.58.",
    "dollars_per_kwh": "price of electricity; None: 0.0806, as industry paid in the USA in 2023.",
    "tokens": "tokens of one step, for tokens/s.",
    "model_flops": "FLOPs of one step on all devices, such as 6 x parameters x tokens, for MFU.",
    "trips": "how often loops run whose number of iterations is only known as they run, by a name "
    'or by their line of code: {"decode.py:40": 512}, or "decode.py:40=512".',
    "branches": "how often the branches of a conditional run, by its line of code: "
    '{"soap.py:12": 0.1} is the share of its runs with a true condition, "every=10" the same, and '
    '[0.2, 0.3, 0.5] the share of each branch of a switch; or texts, "soap.py:12=0.1".',
    "kernels": 'the work of custom kernels, by name: {"my_kernel": sc.Work(flops=1e12, '
    'dtype="bf16")}; "local" for one that might communicate and does not; or texts, '
    '"my_kernel=1e12,bf16".',
    "memory_fraction": "share of a GPU's memory that XLA's pool is given; None: "
    "XLA_CLIENT_MEM_FRACTION of this environment, else 0.75, as in XLA.",
    "ideal": "give the textbook's figure: no latency, every link, unit and memory at its full "
    "rate.",
    "json": "print one JSON document.",
    "verbose": "show what the compiler writes to stderr, instead of keeping it in a log.",
}
ENTRY = re.compile(r"(\*{0,2}\w+(?:, \w+)*): (.*)")  # the first line about a parameter
INDENT = " " * 4
WIDTH = 100


def arguments_of(function: Any) -> dict[str, str]:
    """Return parameter -> what it means, of a function's own parameters under `Args:`."""
    lines = (inspect.getdoc(function) or "").splitlines()
    texts: dict[str, str] = {}
    names: list[str] = []
    if "Args:" not in lines:
        return texts
    for line in lines[lines.index("Args:") + 1 :]:
        if line and not line.startswith(INDENT):
            break
        entry = ENTRY.fullmatch(line[len(INDENT) :])
        if entry:
            names = entry[1].split(", ")
        for name in names if line.strip() else ():
            text = entry[2] if entry else f"{texts[name]} {line.strip()}"
            texts[name] = text
    return texts


def texts_of(function: Any) -> dict[str, str]:
    """Return parameter -> what it means, of all parameters that are described."""
    own = arguments_of(function)
    return {
        name: own.get(name) or SHARED[name]
        for name in inspect.signature(function).parameters
        if name in own or name in SHARED
    }


def described(function: Any) -> str | None:
    """Return a function's docstring with the parameters of SHARED that it does not describe."""
    text = function.__doc__
    own = arguments_of(function)
    more = [n for n in inspect.signature(function).parameters if n in SHARED and n not in own]
    if text is None or "Args:" not in text or not more:
        return text
    head, args, tail = text.partition("Args:\n")
    entries, blank, rest = tail.partition("\n\n")
    margin = INDENT * 2
    added = (
        textwrap.fill(
            f"{name}: {SHARED[name]}",
            WIDTH,
            initial_indent=margin,
            subsequent_indent=margin + INDENT,
        )
        for name in more
    )
    return head + args + "\n".join([entries.rstrip(), *added]) + (blank or "\n" + INDENT) + rest
