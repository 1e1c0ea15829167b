"""The command line: exit codes, one message per mistake, and nothing compiled before it."""

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial

import jax
import pytest

from scaling.cli.generated import Command
from scaling.cli.main import COMMANDS, _warn
from scaling.compile import options
from scaling.training import prepare
from scaling.training.launch import supervisor as restarts
from tests.scaling.cli.running import check_refused, run

SMALL = {  # sizes that eight devices cut in many ways
    "name": "small",
    "model": {"preset": "tiny", "n_heads": 8, "n_kv_heads": 4},
    "batch": {"global_batch": 8, "seq_len": 32},
}


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Runs `scaling WORDS` in an empty folder, where to compile is to fail: (code, out, err).

    jax is started first: else `--devices 3` would leave this test process with three devices.
    """
    assert jax.device_count() == 8

    def no_compile(*_):
        raise AssertionError("compiled before the input was checked")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(options, "use_compilation_cache", lambda: None)
    monkeypatch.setattr(prepare, "jitted_step", no_compile)

    return partial(run, capsys)


@pytest.fixture
def run_json(tmp_path):
    """Writes SMALL with some tables changed; gives the file's path."""

    def write(**tables):
        data = {**SMALL, **{k: _merged(SMALL.get(k), v) for k, v in tables.items()}}
        (tmp_path / "small.json").write_text(json.dumps(data))
        return tmp_path / "small.json"

    return write


def _merged(before, change):
    return {**before, **change} if isinstance(before, dict) else change


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["train", "sharding"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tini"], ["unknown recipe 'tini'", "'tiny'"]),
        (["none.json"], ["cannot read none.json"]),
        (["none.py:run"], ["there is no file none.py"]),
        (["runs.jsonl"], ["predicted"]),
        (["tiny", "--mesh", "tensr=2"], ["unknown axis 'tensr'", "'tensor'"]),
        (["tiny", "--mesh", "data=2,data=4"], ["given twice"]),
        (["tiny", "--mesh", "data=" + "9" * 5000], ["data="]),
        (["tiny", "--mesh", "tensor=8"], ["model.n_heads=4", "tensor=8"]),
        (["tiny", "--mesh", "data=3"], ["batch.global_batch=8", "data=3"]),
        (["deepseek-v3", "--mesh", "stage=2"], ["stage=2", "not yet"]),
        (["tiny", "--mesh", "stage=3"], ["n_layers=2", "stage=3", "stage of 1, 2"]),
        (["tiny", "--mesh", "context=3"], ["seq_len=32", "context=3", "two chunks", "36"]),
        (["tiny", "--devices", "0"], ["--devices 0", "positive"]),
    ],
)
def test_a_bad_argument_is_one_message_before_any_compile(cli, verb, words, said):
    check_refused(cli(verb, *words), *said)


@pytest.mark.parametrize("verb", ["train", "sharding"])
@pytest.mark.parametrize(
    ("tables", "mesh", "said"),
    [
        ({"trian": {}}, None, ["unknown key 'trian'", "'train'"]),
        ({"model": {"n_heads": 6, "head_dim": 8, "n_kv_heads": 2}}, "tensor=4", ["n_heads=6"]),
        ({}, "tensor=8", ["n_kv_heads=4", "tensor=8"]),
        ({"model": {"d_ff": 126}}, "tensor=4", ["d_ff=126", "tensor=4"]),
        ({"model": {"d_model": 60, "head_dim": 8}}, "fsdp=8", ["d_model=60", "fsdp=8"]),
        ({"batch": {"global_batch": 12}}, "data=2,fsdp=4", ["global_batch=12", "data=2 x fsdp=4"]),
        ({"batch": {"microbatches": 4}}, "data=4", ["2 sequences", "microbatches=4"]),
        (
            {"batch": {"seq_len": 30, "microbatches": 8}},
            "tensor=4",
            ["seq_len=30", "sequence_parallel off"],
        ),
        (
            {"model": {"positions": "learned", "max_positions": 16}},
            None,
            ["seq_len=32", "16 learned positions"],
        ),
        ({"model": {"positions": "alibi"}}, None, ["'alibi'", "not yet"]),
        ({"precision": {"compute": "fp16"}}, None, ["'fp16'", "not yet"]),
        ({"dropout": 0.1}, None, ["dropout 0.1", "not yet"]),
        ({"software": "megatron"}, None, ["'megatron'", "not yet"]),
        ({"sharding": {"zero_stage": 0}}, "fsdp=8", ["zero_stage 0", "not yet"]),
    ],
)
def test_a_bad_run_is_one_message_before_any_compile(cli, run_json, verb, tables, mesh, said):
    arguments = ["--mesh", mesh] if mesh else []
    check_refused(cli(verb, run_json(**tables), *arguments), *said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "0"], ["--steps=0", "at least 1"]),
        (["--restarts", "-1"], ["--restarts -1", "negative"]),
        (["--record-profile", "bad"], ["--record-profile 'bad'", "FROM:TO"]),
        (["--record-profile", "1:99"], ["--record-profile 1:99", "1..20"]),
        (["--record-profile", "²:3"], ["--record-profile '²:3'"]),
        (["--mesh", "fsdp=4"], ["needs 4 devices", "8 are present", "--devices 4"]),
        (["--devices", "4"], ["8 host devices"]),
        (["--devices", "100000"], ["--devices 100000", "global_batch=8"]),
        (["--resume"], ["--resume", "no finished checkpoint"]),
    ],
)
def test_a_bad_argument_of_train_is_one_message_before_any_compile(cli, words, said):
    check_refused(cli("train", "tiny", *words), *said)


@pytest.mark.parametrize("name", ["", "..", "/tmp/outside", "nul\0"])
def test_a_name_that_is_no_folder_s_name_is_refused(cli, run_json, name):
    check_refused(cli("train", run_json(name=name)), "name")


def test_what_is_refused_leaves_no_folder_behind(cli, tmp_path):
    cli("train", "tiny", "--mesh", "fsdp=3")
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_run_is_not_written_over(cli, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "metrics.jsonl").write_text("{}\n")
    check_refused(cli("train", "tiny", "--run-dir", "old"), "already holds a run", "no checkpoint")
    (tmp_path / "taken").write_text("x")
    check_refused(cli("train", "tiny", "--run-dir", "taken"), "taken")


def test_bad_input_is_not_started_again(cli, monkeypatch):
    calls = []
    attempt = lambda words, *_: calls.append(words) or (2, False)
    monkeypatch.setattr(restarts, "_attempt", attempt)
    assert cli("train", "tiny", "--mesh", "fsdp=3", "--restarts", "5")[0] == 2
    assert len(calls) == 1
    assert calls[0] == ["train", "tiny", "--mesh", "fsdp=3", "--restarts", "5"]


def test_a_sample_without_a_run_folder_is_one_message(cli, tmp_path):
    check_refused(cli("sample", "nowhere", "--prompt", "x"), "nowhere", "run.json")


# --- with --json --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["sharding", "--json", "tini"], "tini"),
        (["sharding", "tiny", "--devices", "many", "--json"], ""),
        (["sharding", "tiny", "--mesh", "fsdp=8", "--devices", "4", "--json"], "tiny"),
        (["sharding", "--mesh", "fsdp=3", "tiny", "--json"], "tiny"),
        (["cluster", "check", "none.toml", "--json"], "none.toml"),
    ],
)
def test_with_json_the_error_is_also_a_document_on_stdout(cli, words, name):
    code, out, err = cli(*words)
    document = json.loads(out)
    assert code == 2 and err == f"error: {document['error']}\n"
    assert document == {"name": name, "error": document["error"]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], ["no command 'trian'", "'train'"]),
        (["train"], ["Missing", "RUN"]),
        (["train", "tiny", "--stepz", "3"], ["no option --stepz", "'--steps'"]),
        (["train", "tiny", "--steps", "many"], ["--steps 'many'", "whole number"]),
        (["predict", "tiny", "--nodes", "1.5"], ["--nodes '1.5'", "whole number"]),
        (["collective", "all-reduce", "--cluster", "p5", "--skew", "x"], ["--skew 'x'", "number"]),
        (["cluster", "shw"], ["shw", "show"]),
        (["chip", "h100-sxm", "--devices", "1e6"], ["--devices '1e6'", "whole number"]),
        (["serve", "llama3-8b", "--step-time", "0"], ["--step-time", "positive"]),
        (["serve", "--parameters", "0"], ["--parameters", "not a count"]),
        (["serve", "llama3-8b", "--nodes", "200000"], ["1,600,000 devices", "at most"]),
        (["predict", "tiny", "--mesh", "data=8", "--mesh=fsdp=8"], ["--mesh is given twice"]),
        (["train", "tiny", "--resume", "--resume"], ["--resume is given twice"]),
    ],
)
def test_arguments_that_cannot_be_read_are_one_line_on_stderr(cli, words, said):
    check_refused(cli(*words), *said)


def test_bare_scaling_prints_the_help(cli):
    code, out, err = cli()
    assert (code, err) == (0, "") and out.startswith("usage: scaling COMMAND")
    assert cli("--help") == (0, out, "")


def test_the_version_is_printed(cli):
    code, out, err = cli("--version")
    assert (code, err) == (0, "") and re.fullmatch(r"scaling \d+\.\d+.*\n", out)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_names_its_options_without_none(cli, name):
    code, out, err = cli(name, "--help")
    assert (code, err) == (0, "")
    assert "None" not in out and "Example: scaling" in out


# --- scaling sharding ---------------------------------------------------------------------------


def test_sharding_json_adds_up_to_the_model(cli):
    code, out, _ = cli("sharding", "llama3-70b", "--mesh", "fsdp=64,tensor=8", "--json")
    document = json.loads(out)
    rows = {row["name"]: row for row in document["parameters"]}
    assert code == 0
    assert (document["name"], document["devices"]) == ("llama3-70b", 512)
    assert sum(row["bytes"] for row in rows.values()) == 70_553_706_496 * 4
    assert rows["embedding/table_VD"]["device_bytes"] * 512 == 128_256 * 8192 * 4
    norms = 2 * 80 * 8192 + 8192  # whole on every device
    matrices = 70_553_706_496 - norms
    device_bytes = sum(row["device_bytes"] for row in rows.values())
    assert device_bytes == (matrices // 512 + norms) * 4


def test_sharding_says_what_each_device_holds_of_a_sequence_and_what_travels(cli):
    """Llama 3 8B, one sequence a microbatch: keys and values of 8192/4 tokens, 8 heads of 128."""
    code, out, _ = cli("sharding", "llama3-8b", "--mesh", "fsdp=64,context=4")
    (line,) = [line for line in out.splitlines() if line.startswith("context=4")]
    assert code == 0 and "8 chunks of 1024 tokens device i holds i and 7-i" in line
    assert "ring: 3 permutes of 8 MiB" in line
    assert "fsdp+context" in out and "replicated over fsdp, context, which" in out  # norms
    _, out, _ = cli("sharding", "llama3-8b", "--mesh", "fsdp=64,context=4", "--json")
    assert json.loads(out)["sequence"] == {
        "method": "ring",
        "devices": 4,
        "chunk": 1024,
        "others": 3,
        "exchanged_bytes": 2048 * 2 * 8 * 128 * 2,
    }


def test_a_vocabulary_that_stays_whole_is_a_warning(cli):
    code, out, _ = cli("sharding", "gpt2-124m", "--mesh", "tensor=2")
    assert code == 0
    assert "warning: model.vocab_size=50257 is not divisible by tensor=2" in out
    assert "vocab_size=50258" in out


# --- scaling cluster ----------------------------------------------------------------------------


def test_the_catalogue_is_listed_with_titles(cli):
    code, out, err = cli("cluster", "list")
    listed = json.loads(cli("cluster", "list", "--json")[1])
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == [c["name"] for c in listed]
    assert {"host", "dgx-h100", "rtx3090-10"} <= {c["name"] for c in listed}


def test_a_cluster_is_shown_with_its_sources_and_as_json(cli):
    words = ["cluster", "show", "dgx-h100", "--nodes", "4"]
    words += ["--override", "gpus_per_node=2", "--override", "memory=40GB"]
    code, out, _ = cli(*words)
    document = json.loads(cli(*words, "--json")[1])
    assert code == 0 and "8 devices" in out.splitlines()[0]
    assert "datasheet" in out and "override" in out
    assert (document["name"], document["nodes"], document["devices"]) == ("dgx-h100", 4, 8)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show"], ["needs NAME"]),
        (["check", "mine.py"], ["cluster check reads a .toml file, mine.py is none"]),
        (["check", "mien.toml"], ["cannot read mien.toml"]),
        (["show", "dgx-h100", "--override", "gpus_per_node=0"], ["--override gpus_per_node=0:"]),
        (["show", "dgx-h10"], ["'dgx-h10'", "'dgx-h100'"]),
        (["show", "none.toml"], ["cannot read none.toml"]),
        (["show", "dgx-h100", "--nodes", "0"], ["nodes=0"]),
        (["show", "dgx-h100", "--override", "memory"], ["key=value"]),
        (["list", "dgx-h100"], ["list", "dgx-h100"]),
    ],
)
def test_a_bad_argument_of_cluster_is_one_message(cli, tmp_path, words, said):
    (tmp_path / "mine.py").write_text("")
    check_refused(cli("cluster", *words), *said)


def test_a_file_with_mistakes_is_bad_input_and_says_them_all(cli, tmp_path):
    (tmp_path / "mine.toml").write_text('name = "mine"\n')
    code, out, err = cli("cluster", "check", "mine.toml")
    assert (code, out) == (2, "") and "error" in err and "Traceback" not in err
    code, out, err = cli("cluster", "check", "mine.toml", "--json")
    document = json.loads(out)
    assert code == 2 and err and document["name"] == "mine.toml" and document["error"]


def test_a_machine_becomes_a_cluster_file_that_passes_the_check(cli, tmp_path):
    (tmp_path / "topo.txt").write_text("\tGPU0\tGPU1\nGPU0\tX\tPHB\nGPU1\tPHB\tX\n")
    words = ["cluster", "check", "--topology", "topo.txt", "--accelerator", "rtx4090"]
    code, out, _ = cli(*words)
    (tmp_path / "mine.toml").write_text(out)
    assert code == 0 and "assumed by this project" in out
    assert cli("cluster", "check", "mine.toml")[:2] == (0, "mine.toml: no problem found\n")
    document = json.loads(cli(*words, "--json")[1])
    assert document["toml"] == out and document["cluster"]["devices"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "--topology", "none.txt", "--accelerator", "t4"], ["cannot read none.txt"]),
        (["check", "--topology", "none.txt"], ["cannot read none.txt"]),
        (["check", "--topology", "odd.txt"], ["topo -p2p", "by --accelerator"]),
        (["show", "dgx-h100", "--accelerator", "t4"], ["--topology FILE"]),
        (["check", "--topology", "odd.txt", "--accelerator", "t4"], ["line 2", "'FOO'"]),
    ],
)
def test_a_topology_that_cannot_be_used_is_one_message(cli, tmp_path, words, said):
    (tmp_path / "odd.txt").write_text("\tGPU0\tGPU1\nGPU0\tX\tFOO\nGPU1\tFOO\tX\n")
    check_refused(cli("cluster", *words), *said)


# --- the process --------------------------------------------------------------------------------


def python(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=600)


def test_help_loads_no_jax_and_names_every_verb():
    code = (
        "import sys\n"
        "from scaling.cli.main import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "finally:\n"
        "    heavy = {'jax', 'flax', 'optax', 'orbax', 'grain', 'matplotlib'} & set(sys.modules)\n"
        "    assert not heavy, heavy\n"
    )
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(verb in done.stdout for verb in COMMANDS)


PRINTS = """
import sys
from scaling.cli import generated, main
generated.Command.execute = lambda self: print("done") or 0
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("words", [["cluster", "list"], ["train", "tiny"]])
def test_a_reader_that_has_gone_is_no_error(monkeypatch, words):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    command = [sys.executable, "-c", PRINTS, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait(600)) == (b"", 0)


@pytest.mark.parametrize(
    "words", [["predict", "tiny"], ["calibrate", "--quick"], ["train", "tiny"], ["compare", "x"]]
)
def test_ctrl_c_is_one_line_and_exit_code_130(cli, monkeypatch, words):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Command, "execute", interrupted)
    assert cli(*words) == (130, "", "stopped by SIGINT\n")


INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run may have it ignored
from scaling.cli.main import command
command()
"""


@pytest.mark.slow
def test_ctrl_c_before_the_first_step_ends_the_process_without_a_traceback(tmp_path):
    words = ["train", "tiny", "--devices", "2", "--run-dir", str(tmp_path / "run")]
    command = [sys.executable, "-c", INTERRUPTIBLE, *words]
    environment = {k: v for k, v in os.environ.items() if k != "JAX_NUM_CPU_DEVICES"}
    environment["SCALING_CACHE"] = str(tmp_path)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert any("parameters on" in line for line in process.stderr)  # next it compiles
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(600) == 130
    assert rest.endswith("stopped by SIGINT\n") and "Traceback" not in rest


@pytest.mark.parametrize("place", ["collector", "code"])
def test_ctrl_c_stops_at_once_also_where_an_exception_would_be_lost(place):
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from scaling.cli import main as cli\n"
        "stop = lambda: (os.kill(os.getpid(), signal.SIGINT), sum(range(10**6)))\n"
        "class Collected:\n"
        "    def __del__(self):\n"
        "        stop()\n"
        "def verb():\n"
        "    Collected() if sys.argv[1] == 'collector' else stop()\n"
        "    print('went on')\n"
        "cli.main = verb\n"
        "cli.command()\n"
    )
    done = python("-c", code, place)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped by SIGINT\n")


def test_a_warning_is_one_line_without_the_source_that_found_it(capsys):
    _warn(UserWarning("the checkpoint is damaged"), UserWarning, "loop.py", 7)
    assert capsys.readouterr().err == "warning: the checkpoint is damaged\n"
