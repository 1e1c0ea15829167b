"""All commands, by what they are for, and those whose options are a function's parameters."""

from collections.abc import Mapping

from scaling.cli.generated import Generated

GROUPS: Mapping[str, tuple[str, ...]] = {  # in this order in the help
    "run a model": ("train", "eval", "sample", "export", "compare", "calibrate"),
    "predict a step": (
        *(
            "predict",
            "plan",
            "price",
            "diff",
            "plan-step",
            "collective",
            "config",
            "sharding",
            "cluster",
        ),
    ),
    "ask about a model, a chip or a mesh": (
        *("limits", "serve", "count", "budget", "chip", "kernel", "array"),
    ),
    "learn": ("learn", "testbed"),
}
HINTS: Mapping[str, str] = {  # what is said about a program, as a command line has it
    "trips": "how often a loop runs whose trips only the run tells, such as decode.py:40=512.",
    "branches": "how often the branches of a conditional run: soap.py:12=0.1, the share of its "
    "runs with a true condition, or soap.py:12=every=10; of a switch one for each, 0.2,0.3,0.5.",
    "kernels": "NAME=FLOPS,FORMAT of a custom kernel that talks to no other device, such as "
    "my_kernel=1e12,bf16; without a format they are vector arithmetic; NAME alone: by its bytes.",
}
QUESTION, OWN = "scaling.cli.show:answer", "scaling.cli.show:exit_code"
GENERATED: Mapping[str, Generated] = {
    "train": Generated(
        "train",
        "scaling train demo --mesh data=2,fsdp=2,tensor=2 --devices 8",
        ("run",),
        "scaling.cli.train:train",
    ),
    "eval": Generated(
        "evaluate",
        "scaling eval runs/demo --data notes.txt",
        ("run_dir",),
    ),
    "sample": Generated(
        "sample",
        'scaling sample runs/demo --prompt "def "',
        ("run_dir",),
        "scaling.cli.show:texts",
        hidden=("prompts",),
        first=("prompt", "prompts"),
    ),
    "export": Generated("export", "scaling export runs/demo --output demo-weights", ("run_dir",)),
    "compare": Generated(
        "compare",
        "scaling compare runs/demo. Or two predictions: scaling compare before.json after.json",
        ("run_dir", "other"),
        "scaling.cli.compare:compare",
    ),
    "calibrate": Generated(
        "calibrate", "scaling calibrate --quick --devices 8", (), "scaling.cli.show:calibration"
    ),
    "predict": Generated(
        "predict",
        "scaling predict llama3-70b --mesh fsdp=64,tensor=8 --cluster dgx-h100 --nodes 64",
        ("run",),
        "scaling.cli.predict:predict",
        hidden=("estimates",),
        first=(
            *("cluster", "nodes", "mesh", "set", "batch", "seq_len", "explain", "what_if", "scale"),
        ),
    ),
    "price": Generated(
        "predict_hlo",
        "scaling price step.py:make --cluster dgx-h100 --nodes 8 --mesh data=8,model=8. Or: "
        "scaling price --hlo DUMP --cluster dgx-h100 --nodes 8",
        ("step",),
        "scaling.cli.price:price",
        summary="Price a step that is not ours: one that a script makes, or a program that XLA "
        "dumped.",
        hidden=("text", "name"),
        first=("hlo", "cluster", "nodes", "mesh"),
        texts=HINTS,
    ),
    "diff": Generated(
        "diff",
        "scaling diff before.json after.json",
        ("first", "second"),
        first=("cluster", "nodes", "mesh"),
    ),
    "plan-step": Generated(
        "plan_step",
        "scaling plan-step step.py:make --cluster dgx-h100 --nodes 2 --axes data,model",
        ("make",),
        "scaling.cli.show:plotted",
        first=("cluster", "nodes", "axes", "max", "meshes", "variants", "top", "like"),
        texts={
            **HINTS,
            "plot": "write a picture of the plans' step times, by term (.png or .svg).",
        },
    ),
    "plan": Generated(
        "plan",
        "scaling plan llama3-8b --cluster dgx-h100 --nodes 8",
        ("run",),
        "scaling.cli.show:planned",
    ),
    "collective": Generated(
        "price_collective",
        "scaling collective all-reduce --bytes 1GiB --cluster dgx-h100 --nodes 4",
        ("kind",),
        "scaling.cli.collective:collective",
        hidden=("bytes",),
        first=("bytes", "sweep", "cluster"),
    ),
    "config": Generated("config", "scaling config llama3-8b --set batch.microbatches=8", ("run",)),
    "cluster": Generated(
        "scaling.cli.cluster:cluster",
        "scaling cluster show dgx-h100",
        ("action", "name"),
        OWN,
        first=("nodes", "overrides"),
    ),
    "sharding": Generated(
        "sharding",
        "scaling sharding llama3-70b --mesh fsdp=64,tensor=8",
        ("run",),
        "scaling.cli.show:plotted",
        texts={
            "plot": "write a picture of the devices, coloured by their place along each axis (.png "
            "or .svg)."
        },
    ),
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
    "learn": Generated(
        "scaling.cli.learn:learn",
        "scaling learn quiz gpu-q2.3 --guess 2.1",
        ("what", "name", "run"),
        OWN,
        flags={"tries": "try"},
    ),
    "testbed": Generated(
        "scaling.cli.testbed:testbed",
        "scaling testbed up --hosts 2 --devices 2 --bandwidth 1Gbit then: scaling testbed run -- "
        "scaling train tiny --mesh data=2,fsdp=2 and at last: scaling testbed down",
        ("action", "command"),
        OWN,
        summary="Make a real cluster inside this Linux machine, run a command on all its hosts, "
        "remove it.\n\nHosts are network namespaces, joined by links of a known rate; needs root, "
        "iproute2 and util-linux.",
    ),
}
