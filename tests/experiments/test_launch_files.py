"""The launch files start what they say: run against stand-ins, read by our own command line."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from scaling.api.inputs import load_run
from scaling.cli.main import parse
from scaling.meshes.shape import parse_mesh
from scaling.parallelism.rules import rules_for
from scaling.train.launch.distributed import job_kind

LAUNCH = Path(__file__).resolve().parents[2] / "experiments" / "launch"
SCRIPTS = sorted(path.name for path in LAUNCH.glob("*.sh"))
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


@pytest.fixture
def understood():
    """What our own command line makes of words, without training."""

    def understand(words):
        assert words[0] == "scaling"
        return parse(words[1:])

    return understand


def after_launcher(words):
    """From `scaling` on."""
    return words[words.index("scaling") :]


def save(folder, step):
    """What marks a finished checkpoint."""
    path = folder / "checkpoints" / f"step_{step:08d}"
    path.mkdir(parents=True)


def slurm(launched, tmp_path, **more):
    given = {"SLURM_JOB_ID": "4242", "SLURMD_NODENAME": "node7", "SLURM_CPUS_PER_TASK": "8"}
    return launched(
        "bash", str(LAUNCH / "slurm.sh"), **given, RUN_DIR=str(tmp_path / "run"), **more
    )


def sbatch_options():
    lines = (LAUNCH / "slurm.sh").read_text().splitlines()
    options = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH --")]
    return dict(option.partition("=")[::2] for option in options)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_is_bash_and_may_be_executed(name):
    assert subprocess.run(["bash", "-n", str(LAUNCH / name)]).returncode == 0
    assert os.access(LAUNCH / name, os.X_OK)


def test_slurm_starts_one_process_for_each_device_of_the_mesh(launched, understood, tmp_path):
    words, env = slurm(launched, tmp_path)
    given, options = understood(after_launcher(words)), sbatch_options()
    tasks = int(options["nodes"]) * int(options["ntasks-per-node"])
    assert parse_mesh(given.mesh).devices == tasks
    assert options["gpus-per-node"] == options["ntasks-per-node"]
    assert given.restarts == 3 and not given.resume
    assert words[0] == "--kill-on-bad-exit=1"
    assert env["SRUN_CPUS_PER_TASK"] == "8"


def test_the_processes_of_srun_are_a_job_that_is_understood(launched, tmp_path):
    _, env = slurm(launched, tmp_path)
    of_srun = {"SLURM_STEP_NUM_TASKS": "32", "SLURM_PROCID": "31"}
    assert env["JAX_COORDINATOR_ADDRESS"] == "node7:24242"
    assert job_kind({**env, **of_srun}) == "explicit"


def test_slurm_goes_on_where_there_is_a_checkpoint(launched, understood, tmp_path):
    save(tmp_path / "run", 7)
    words, _ = slurm(launched, tmp_path, RUN="tiny", MESH="fsdp=32")
    given = understood(after_launcher(words))
    assert given.resume and given.run == "tiny" and given.mesh == "fsdp=32"


def test_a_folder_with_blanks_stays_one_word(launched, understood, tmp_path):
    folder = tmp_path / "my runs"
    save(folder, 7)
    more = {"SLURM_JOB_ID": "1", "RUN_DIR": str(folder)}
    words, _ = launched("bash", str(LAUNCH / "slurm.sh"), **more)
    assert understood(after_launcher(words)).run_dir == folder


def test_open_mpi_meets_at_the_first_host_with_a_process_for_each_slot(
    launched, understood, tmp_path
):
    (tmp_path / "hosts").write_text("# ours\n\nnode3 slots=8\nnode4 slots=8\n")
    words, _ = launched("bash", str(LAUNCH / "openmpi.sh"), "hosts")
    given = understood(after_launcher(words))
    assert words[words.index("-np") + 1] == "16" == str(parse_mesh(given.mesh).devices)
    assert "JAX_COORDINATOR_ADDRESS=node3:29400" in words
    of_mpirun = {"OMPI_COMM_WORLD_SIZE": "16", "OMPI_COMM_WORLD_RANK": "15"}
    assert job_kind({"JAX_COORDINATOR_ADDRESS": "node3:29400", **of_mpirun}) == "explicit"
    assert given.restarts == 3 and not given.resume


def test_open_mpi_without_hosts_says_how_it_is_used():
    done = subprocess.run(["bash", str(LAUNCH / "openmpi.sh")], capture_output=True, text=True)
    assert done.returncode and "usage: openmpi.sh HOSTS_FILE" in done.stderr


# Kubernetes


@pytest.fixture(scope="module")
def objects():
    documents = yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())
    return {document["kind"]: document for document in documents}


def container(objects):
    (found,) = objects["Job"]["spec"]["template"]["spec"]["containers"]
    return found


def variables(objects):
    return {v["name"]: v.get("value") for v in container(objects)["env"]}


def test_the_processes_are_as_many_as_the_pods_and_fit_the_mesh(objects):
    job, given = objects["Job"]["spec"], variables(objects)
    assert job["completions"] == job["parallelism"] == int(given["JAX_NUM_PROCESSES"])
    gpus = container(objects)["resources"]["limits"]["nvidia.com/gpu"]
    assert parse_mesh(given["MESH"]).devices == job["completions"] * gpus
    assert job["completionMode"] == "Indexed"


def test_the_address_is_that_of_pod_0_behind_the_service(objects):
    name, service = objects["Job"]["metadata"]["name"], objects["Service"]
    host, port = variables(objects)["JAX_COORDINATOR_ADDRESS"].split(":")
    assert host == f"{name}-0.{service['metadata']['name']}"
    assert int(port) in [entry["port"] for entry in service["spec"]["ports"]]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"] == {"job-name": name}
    assert objects["Job"]["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]


def test_the_number_of_a_process_is_the_index_of_its_pod(objects):
    (source,) = (v for v in container(objects)["env"] if v["name"] == "JAX_PROCESS_ID")
    path = source["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    found = {k: v for k, v in variables(objects).items() if k.startswith("JAX_")}
    assert job_kind({**found, "JAX_PROCESS_ID": "3"}) == "explicit"


@pytest.mark.parametrize("saved", [False, True])
def test_a_pod_trains_and_goes_on_where_there_is_a_checkpoint(
    objects, launched, understood, tmp_path, saved
):
    folder = tmp_path / "run"
    if saved:
        save(folder, 7)
    settings = {k: v for k, v in variables(objects).items() if v} | {"RUN_DIR": str(folder)}
    words, _ = launched(*container(objects)["command"], **settings)
    given = understood(["scaling", *words])
    assert given.resume == saved and given.run_dir == folder and given.restarts == 3
    assert given.stopped_code != 0  # else a pod that is moved would count as done


def test_pods_that_were_stopped_do_not_count_as_failed(objects, launched, understood, tmp_path):
    settings = {k: v for k, v in variables(objects).items() if v} | {"RUN_DIR": str(tmp_path)}
    words, _ = launched(*container(objects)["command"], **settings)
    (rule,) = objects["Job"]["spec"]["podFailurePolicy"]["rules"]
    asked = rule["onExitCodes"]
    assert (rule["action"], asked["operator"]) == ("Ignore", "In")
    assert asked["values"] == [understood(["scaling", *words]).stopped_code]
    assert asked["containerName"] == container(objects)["name"]


def test_every_volume_that_is_mounted_is_there(objects):
    pod = objects["Job"]["spec"]["template"]["spec"]
    mounted = {mount["name"] for mount in container(objects)["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert any(
        variables(objects)["RUN_DIR"].startswith(mount["mountPath"])
        for mount in container(objects)["volumeMounts"]
    )


# What all of them start


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
    run = load_run("llama3-8b", mesh=mesh)
    assert run.batch.global_batch % (run.mesh.batch_shards * run.batch.microbatches) == 0
    rules_for(run, run.mesh)


def test_the_readme_names_every_file():
    text = (LAUNCH / "README.md").read_text()
    files = {path.name for path in LAUNCH.iterdir()} - {"README.md"}
    assert all(f"[`{name}`]({name})" in text for name in files)
    assert len(files) == 3
