"""The launch files start what they say: run against stand-ins, read by our own command line."""

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from scaling.api.runs import load_run
from scaling.cli.main import parse
from scaling.meshes.shape import parse_mesh
from scaling.run.parallelism.rules import rules_for
from scaling.training.launch.distributed import job_kind

LAUNCH = Path(__file__).resolve().parents[2] / "experiments" / "launch"
FOLDER = "my runs"  # a blank, which the files must keep
STAND_IN = """#!/bin/sh
printf '%s\\0' "$@" > {seen}/words
env -0 > {seen}/environment
"""

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the files are for bash")


@pytest.fixture
def launched(tmp_path):
    """Runs a script where `srun`, `mpirun` and `scaling` only note what they were given."""
    tools, seen = tmp_path / "tools", tmp_path / "seen"
    tools.mkdir()
    seen.mkdir()
    for name in ("srun", "mpirun", "scaling"):
        (tools / name).write_text(STAND_IN.format(seen=seen))
        (tools / name).chmod(0o755)

    def run(*words, **settings):
        env = {"PATH": f"{tools}:{os.environ['PATH']}", **settings}
        done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        given = (seen / "words").read_text().split("\0")[:-1]
        lines = (seen / "environment").read_text().split("\0")[:-1]
        return given, dict(line.split("=", 1) for line in lines)

    return run


def saved_folder(tmp_path, saved):
    """A run folder, with a checkpoint or with one that was interrupted."""
    name = "step_00000007" if saved else "step_00000007.orbax-checkpoint-tmp-1"
    (tmp_path / FOLDER / "checkpoints" / name).mkdir(parents=True)
    return tmp_path / FOLDER


def given_to_train(words):
    """The options of `scaling train` by name."""
    return SimpleNamespace(**{"resume": False, **parse(words).values})


def sbatch_options():
    lines = (LAUNCH / "slurm.sh").read_text().splitlines()
    options = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH --")]
    return dict(option.partition("=")[::2] for option in options)


@pytest.mark.parametrize("saved", [False, True])
def test_slurm_starts_one_process_per_device_and_resumes_a_checkpoint(launched, tmp_path, saved):
    folder = saved_folder(tmp_path, saved)
    settings = {"SLURM_JOB_ID": "4242", "SLURMD_NODENAME": "node7", "SLURM_CPUS_PER_TASK": "8"}
    words, env = launched("bash", str(LAUNCH / "slurm.sh"), RUN_DIR=str(folder), **settings)
    train, options = given_to_train(words[words.index("scaling") + 1 :]), sbatch_options()
    tasks = int(options["nodes"]) * int(options["ntasks-per-node"])
    assert parse_mesh(train.mesh).devices == tasks
    assert options["gpus-per-node"] == options["ntasks-per-node"]
    assert (train.resume, train.run_dir, train.restarts) == (saved, folder, 3)
    assert words[0] == "--kill-on-bad-exit=1" and env["SRUN_CPUS_PER_TASK"] == "8"
    assert env["JAX_COORDINATOR_ADDRESS"] == "node7:24242"
    of_srun = {"SLURM_STEP_NUM_TASKS": "32", "SLURM_PROCID": "31"}
    assert job_kind({**env, **of_srun}) == "explicit"


def test_open_mpi_starts_one_process_per_slot_and_resumes_a_checkpoint(launched, tmp_path):
    folder = saved_folder(tmp_path, saved=True)
    (tmp_path / "hosts").write_text("# ours\n\nnode3 slots=8\nnode4 slots=8\n")
    words, _ = launched("bash", str(LAUNCH / "openmpi.sh"), "hosts", RUN_DIR=str(folder))
    train = given_to_train(words[words.index("scaling") + 1 :])
    assert words[words.index("-np") + 1] == "16" == str(parse_mesh(train.mesh).devices)
    assert "JAX_COORDINATOR_ADDRESS=node3:29400" in words
    of_mpirun = {"OMPI_COMM_WORLD_SIZE": "16", "OMPI_COMM_WORLD_RANK": "15"}
    assert job_kind({"JAX_COORDINATOR_ADDRESS": "node3:29400", **of_mpirun}) == "explicit"
    assert (train.resume, train.run_dir, train.restarts) == (True, folder, 3)


@pytest.fixture(scope="module")
def objects():
    """The Kubernetes objects by kind."""
    documents = yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())
    return {document["kind"]: document for document in documents}


def container(objects):
    (only,) = objects["Job"]["spec"]["template"]["spec"]["containers"]
    return only


def variables(objects):
    return {v["name"]: v.get("value") for v in container(objects)["env"]}


def test_kubernetes_pods_are_the_processes_and_fit_the_mesh(objects):
    job, env = objects["Job"]["spec"], variables(objects)
    assert job["completions"] == job["parallelism"] == int(env["JAX_NUM_PROCESSES"])
    gpus = container(objects)["resources"]["limits"]["nvidia.com/gpu"]
    assert parse_mesh(env["MESH"]).devices == job["completions"] * gpus
    assert job["completionMode"] == "Indexed"
    (source,) = (v for v in container(objects)["env"] if v["name"] == "JAX_PROCESS_ID")
    path = source["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    of_jax = {k: v for k, v in env.items() if k.startswith("JAX_")}
    assert job_kind({**of_jax, "JAX_PROCESS_ID": "3"}) == "explicit"


def test_kubernetes_address_is_that_of_pod_0_behind_the_service(objects):
    name, service = objects["Job"]["metadata"]["name"], objects["Service"]
    host, port = variables(objects)["JAX_COORDINATOR_ADDRESS"].split(":")
    assert host == f"{name}-0.{service['metadata']['name']}"
    assert int(port) in [entry["port"] for entry in service["spec"]["ports"]]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"] == {"job-name": name}
    assert objects["Job"]["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]


def test_kubernetes_pod_resumes_a_checkpoint_and_a_stop_does_not_count_as_failure(
    objects, launched, tmp_path
):
    folder = saved_folder(tmp_path, saved=True)
    settings = {k: v for k, v in variables(objects).items() if v} | {"RUN_DIR": str(folder)}
    words, _ = launched(*container(objects)["command"], **settings)
    train = given_to_train(words)
    assert (train.resume, train.run_dir, train.restarts) == (True, folder, 3)
    assert train.stopped_code != 0  # else a pod that is moved would count as done
    (rule,) = objects["Job"]["spec"]["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["operator"]) == ("Ignore", "In")
    assert rule["onExitCodes"]["values"] == [train.stopped_code]
    assert rule["onExitCodes"]["containerName"] == container(objects)["name"]


@pytest.mark.parametrize(
    ("file", "mesh"),
    [
        ("slurm.sh", "data=4,fsdp=8"),
        ("openmpi.sh", "data=2,fsdp=8"),
        ("kubernetes.yaml", "data=4,fsdp=8"),
    ],
)
def test_the_run_of_every_file_fits_its_mesh(file, mesh):
    text = (LAUNCH / file).read_text()
    assert "llama3-8b" in text and mesh in text
    assert f"[`{file}`]({file})" in (LAUNCH / "README.md").read_text()
    run = load_run("llama3-8b", mesh=mesh)
    assert run.batch.global_batch % (run.mesh.batch_shards * run.batch.microbatches) == 0
    rules_for(run, run.mesh)
