"""What a command prints to be typed next is a command: it runs, and repeats what was typed.

Every way to name a run and a cluster, with the options that both commands have; each `next:` is
split as a shell does, and run with a closed form.
"""

import ast
import json
import re
import shlex
from functools import cache
from importlib.resources import files

import pytest

import scaling as sc
from scaling.api import result
from scaling.cli.commands import GENERATED
from scaling.cli.generated import options_of
from scaling.cli.main import COMMANDS
from scaling.meshes.shape import MeshShape
from scaling.profiles.io import profile_of, write_profile
from scaling.report.advice import Advice
from tests.scaling.cli.running import run
from tests.test_arrows import sources

CONFIG = {
    "model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512, "rope_theta": 1e4, "tie_word_embeddings": False,
}  # fmt: skip
SCRIPT = """
import helper
import scaling as sc
def make(): return sc.load_run("tiny", set={"batch.global_batch": helper.SEQUENCES})
"""
RUNS = ["tiny", "my model/config.json", "my model", "run.json", "runs/a b/run.json", "own.py:make"]
OPTIONS = [
    ["--cluster", "dgx-h100"],
    ["--cluster", "my lab.toml", "--nodes", "2", "--override", "node_network_bandwidth=100Gb/s"],
    ["--cluster", "dgx-h100", "--set", "batch.seq_len=16", "--set", "remat=query,key,value"],
    ["--cluster", "dgx-h100", "--calibration", "my figures.json", "--device-order", "fsdp,data"],
    ["--cluster", "dgx-h100", "--set", 'batch={"global_batch": 64, "seq_len": 8}'],
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder with a file of each kind."""
    monkeypatch.chdir(tmp_path)
    for place in ("my model", "runs/a b"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "my model" / "config.json").write_text(json.dumps(CONFIG))
    small = {"name": "small", "model": {"preset": "tiny"}, "mesh": {"fsdp": 4}}
    for place in ("run.json", "runs/a b/run.json"):
        document = {**small, "batch": {"global_batch": 32, "seq_len": 32}}
        (tmp_path / place).write_text(json.dumps(document))
    (tmp_path / "own.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("SEQUENCES = 64\n")
    text = files("scaling.meshes.catalog").joinpath("clusters", "dgx-h100.toml").read_text()
    (tmp_path / "my lab.toml").write_text(text.replace("dgx-h100", "lab"))
    write_profile(profile_of(sc.load_cluster("dgx-h100").accelerator), tmp_path / "my figures.json")
    return tmp_path


def commands_in(out):
    """The commands that a page prints to be typed, as words."""
    lines = [line.removeprefix("next: ").strip() for line in out.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("scaling ")]


def check_repeats(command, name, given):
    """The command names the run as typed, and every option that it does not change."""
    assert command[2] == name
    pairs = list(zip(command, command[1:], strict=False))
    for option, value in zip(given[::2], given[1::2], strict=True):
        assert (option, value) in pairs or "remat" in value, (option, value, command)


CASES = [
    pytest.param(name, given, marks=() if i % 5 == j else pytest.mark.slow)
    for i, name in enumerate(RUNS)
    for j, given in enumerate(OPTIONS)
]


@pytest.mark.parametrize(("name", "given"), CASES)
def test_the_command_after_a_plan_runs_as_printed(folder, capsys, name, given):
    code, out, err = run(capsys, "plan", name, *given, "--top", 1)
    assert (code, err) == (0, "")
    (command,) = commands_in(out)
    check_repeats(command, name, given)
    command.remove("--explain")
    code, out, err = run(capsys, *command[1:], "--source", "analytic", "--json")
    assert (code, json.loads(out)["memory"]["fits"]) == (0, True), err


@pytest.mark.parametrize(("name", "given"), CASES)
def test_the_command_of_an_advice_runs_as_printed(folder, capsys, monkeypatch, name, given):
    """The change replaces what was typed of it: options are not there twice."""
    found = Advice(sc.load_run("tiny"), {"remat": "full"}, MeshShape(data=4), effect="better")
    monkeypatch.setattr("scaling.report.advice.advice", lambda *_: [found])
    typed = [*given, "--mesh", "fsdp=4", "--source", "analytic", "--what-if", "nvlink x2"]
    code, out, _ = run(capsys, "predict", name, *typed)
    assert code == 0 and "next: --mesh data=4 --set remat=full: better\n" in out
    (command,) = commands_in(out)
    check_repeats(command, name, [*given, "--what-if", "nvlink x2"])
    code, out, err = run(capsys, *command[1:], "--json")
    assert (code, json.loads(out)["mesh"]) == (0, "data=4"), err


def test_in_python_a_suggestion_is_a_call(folder):
    """It runs as it stands, where everything has a name."""
    asked = {"set": {"batch.seq_len": 16}, "overrides": {"memory": "40GB"}}
    found = sc.plan("my model/config.json", folder / "my lab.toml", 2, **asked, top=1)
    call = str(found).rpartition("next: ")[2]
    again = eval(call.replace("sc.predict(", "sc.predict(source='analytic', run="), {"sc": sc})
    assert again.mesh == found.plans[0].prediction.mesh and again.cluster.name == "lab"
    assert "--" not in call


def test_an_object_without_a_name_is_called_as_its_type():
    here = sc.load_cluster("dgx-h100", nodes=2)
    found = sc.plan(sc.load_run("tiny"), here, top=1)
    assert found.next and found.next.startswith("sc.predict(run, cluster=cluster, nodes=")


def test_what_was_asked_pickles_with_the_result():
    import pickle

    found = sc.predict("tiny", sc.load_cluster("dgx-h100"), mesh={"fsdp": 8}, source="analytic")
    again = pickle.loads(pickle.dumps(found))
    assert again.pricing.request == found.pricing.request
    assert isinstance(found, result.PredictionResult)


# Of other programs (xprof, tensorboard, docker, marimo), of pytest with our plugin, and variables
# of style sheets.
FOREIGN = {"help", "version", "logdir", "port", "privileged", "host", "predicted", "measured"}
FOREIGN |= {"scaling-update"}
TEXTS = [p for folder in ("scaling", "meshes", "models") for p in sources(folder)]


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def messages(path):
    """Every text of a file but its docstrings, values in it as `{}`."""
    nodes = [*ast.walk(tree_of(path))]
    inner = {id(v) for n in nodes if isinstance(n, ast.JoinedStr) for v in n.values}
    inner |= {id(n.value) for n in nodes if isinstance(n, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in inner:
                yield node.value


def test_every_option_that_a_message_names_is_one_of_a_command():
    """Behind `scaling VERB` of that command."""
    known = {name: {o.flag for o in options_of(GENERATED[name])} for name in COMMANDS}
    every = set().union(*known.values()) | {f"--{name}" for name in FOREIGN}
    paths = [path for path in TEXTS if "testbed" not in path.parts]
    found = [(path, text) for path in paths for text in messages(path)]
    unknown = [
        (str(path), option)
        for path, text in found
        for option in re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*(?![\w(-])", text)
        if option not in every
    ]
    assert len(found) > 1000 and unknown == []
    commands = [
        (verb, set(re.findall(r"(?<!-)--[a-z][a-z-]*", rest)))
        for _, text in found
        for verb, rest in re.findall(r"scaling ([a-z]+) ([^`]*)`", text)
    ]
    assert commands and all(given <= known[verb] for verb, given in commands)


def test_the_nearest_name_ends_its_sentence():
    """`did you mean 'x'?` has its own mark; what follows would read `?; a file ...`."""
    followed = []
    for path in TEXTS:
        for node in ast.walk(tree_of(path)):
            parts = node.values if isinstance(node, ast.JoinedStr) else []
            for part, after in zip(parts, parts[1:], strict=False):
                called = [n.func for n in ast.walk(part) if isinstance(n, ast.Call)]
                if any(getattr(f, "id", "") == "nearest" for f in called):
                    followed.append((str(path), ast.unparse(after)))
    assert [found for found in followed if not found[1].startswith(("')", "'\\n"))] == []


BETTER = {
    ("predict", "meta-llama/Meta-Llama-3-8B"): ["config.json", "did you mean 'llama3-8b'?"],
    ("predict", "Qwen/Qwen2.5-7B-Instruct"): ["did you mean 'qwen2.5-7b'?"],
    ("predict", "xyzzy"): ["known: tiny, demo,", "more"],
    ("predict", "tiny", "--cluster", "dgx-h1000"): [
        "ends in .toml); did you mean 'dgx-h100'? (known"
    ],
    ("predict", "tiny", "--cluster", "p5", "--override", "nic=100Gb/s"): [
        "did you mean 'nic_bandwidth'",
        "all NICs of a node together",
    ],
    ("predict", "llama3-8b", "--cluster", "p5", "--mesh", "fsdp=7"): [
        "error: mesh fsdp=7 uses 7 of the 8 devices",
        "multiply to 8",
    ],
    ("predict", "gem"): ['"d_model": 2304', '"n_layers": 26', "known: gpt2, llama"],
    ("config", "own.py:two"): ["returned an int; return a scaling.Run"],
    ("config", "tiny", "--set", "mesh.dp=2"): ["unknown axis 'dp'; here 'dp' is 'data'"],
}


@pytest.mark.parametrize("words", BETTER, ids=" ".join)
def test_a_refusal_says_what_to_write(folder, capsys, words):
    shapes = {"hidden_size": 2304, "num_hidden_layers": 26, "vocab_size": 256000}
    (folder / "gem").mkdir()
    (folder / "gem" / "config.json").write_text(json.dumps({"model_type": "falcon", **shapes}))
    (folder / "own.py").write_text("def two(): return 2\n")
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "") and [part for part in BETTER[words] if part not in err] == []
    assert len(err) < 700


def test_arguments_without_dashes_are_no_options(capsys):
    _, _, err = run(capsys, "plan", "tiny", "--xyz", "4")
    assert "--tokens" in err and "--run" not in err


def test_a_model_written_by_hand_as_the_refusal_says_is_priced(folder, capsys):
    """The JSON of the message, once what it lacks is filled in."""
    shapes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    (folder / "phi.json").write_text(
        json.dumps({"model_type": "phi9", **shapes, "intermediate_size": 128, "vocab_size": 256})
    )
    _, _, err = run(capsys, "predict", "phi.json")
    document = json.loads(err[err.index("{") :])
    document["batch"] = {"global_batch": 8, "seq_len": 16}
    (folder / "mine.json").write_text(json.dumps(document))
    code, _, _ = run(capsys, "predict", "mine.json", "--cluster", "p5", "--source", "analytic")
    assert code == 0


def test_the_header_says_what_is_priced(capsys):
    """The work of a step, figures that were stated otherwise, and the base of a what-if."""
    place = ["--cluster", "dgx-h100", "--nodes", "2", "--source", "analytic"]
    words = ["predict", "tiny", *place, "--set", "batch.global_batch=1Ki", "--set", "remat=full"]
    rate = "node_network_bandwidth=100Gb/s"
    code, out, _ = run(capsys, *words, "--override", rate, "--what-if", "network x0.25")
    title, work, change, step, *_ = out.splitlines()
    assert code == 0 and f"override {rate} (all NICs of a node together)" in title
    assert (
        work == "1,024 sequences x 32 tokens = 32,768 tokens a step, fp32, 1 microbatch, remat full"
    )
    _, base, _ = run(capsys, *words, "--override", rate)
    before = base.splitlines()[2].split(" (")[0].removeprefix("step ")
    after = step.split(" (")[0].removeprefix("step ")
    assert change.startswith(f"with the change: {after} a step instead of {before}, +")
    code, out, _ = run(capsys, "plan", "tiny", *place[:4], "--mesh", "fsdp=4", "--top", 1)
    assert "\n8 sequences x 32 tokens = 256 tokens a step, fp32\n" in out
    assert "warning: mesh fsdp=4 uses 4 of the 16 devices" in out
