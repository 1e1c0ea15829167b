"""The environment names the job, the process and its devices; signals end a run before a step."""

import os
import signal
import socket

import jax
import pytest

from scaling.cli.main import main
from scaling.meshes.errors import InputError
from scaling.training.launch.distributed import (
    NotJoined,
    bind_address,
    job_kind,
    local_devices,
    process_name,
    start_distributed,
)
from scaling.training.launch.stopping import StopSignal
from scaling.training.launch.supervisor import BEGAN

EXPLICIT = {
    "JAX_COORDINATOR_ADDRESS": "localhost:1234",
    "JAX_NUM_PROCESSES": "4",
    "JAX_PROCESS_ID": "3",
}
ADDRESS = {"JAX_COORDINATOR_ADDRESS": "node0:1234"}
SLURM = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3"}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"}
OF_EIGHT = {"SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "1", "SLURM_LOCALID": "5"}
ALONE = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2", "SLURM_LOCALID": "0"}


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({}, None),
        (EXPLICIT, "explicit"),
        (EXPLICIT | SLURM, "explicit"),
        (ADDRESS | SLURM, "explicit"),
        (ADDRESS | OPEN_MPI, "explicit"),
        (SLURM, "Slurm"),
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_ID": "7"}, None),
        ({"SLURM_NTASKS": "8"}, None),  # in the batch script, outside srun
        (OPEN_MPI, "Open MPI"),
        ({name: "" for name in (*EXPLICIT, *SLURM, *OPEN_MPI)}, None),
    ],
)
def test_the_environment_tells_what_started_this_process(environment, kind):
    assert job_kind(environment) == kind


@pytest.mark.parametrize(
    ("address", "bound"),
    [
        ("127.0.0.1:1234", "127.0.0.1:1234"),
        ("localhost:1234", ("127.0.0.1:1234", "[::1]:1234")),
        ("192.0.2.1:1234", None),  # an address for documentation (RFC 5737): nobody's
        ("no-such-host.invalid:1234", None),
    ],
)
def test_the_coordinator_listens_where_the_others_reach_it_alone(address, bound):
    assert bind_address(address) in (bound if isinstance(bound, tuple) else (bound,))


def test_a_name_of_the_loopback_interface_is_not_bound_to(monkeypatch):
    """Debian's /etc/hosts says that a host's own name is 127.0.1.1; the others find another."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert bind_address("node0:1234") is None


@pytest.mark.parametrize(
    ("index", "more", "bound"),
    [
        ("0", {}, {"coordinator_bind_address": "127.0.0.1:1234"}),
        ("1", {}, {}),
        ("0", {"JAX_COORDINATOR_BIND_ADDRESS": "[::]:1234"}, {}),  # which jax reads
    ],
)
def test_only_the_coordinator_binds_and_a_user_may_say_where(monkeypatch, index, more, bound):
    given = {}
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(jax.distributed, "initialize", lambda **options: given.update(options))
    address = {"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1234", "JAX_PROCESS_ID": index}
    assert start_distributed(EXPLICIT | address | more) == "explicit"
    assert {k: v for k, v in given.items() if "bind" in k} == bound


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (ADDRESS, "JAX_NUM_PROCESSES, JAX_PROCESS_ID is not"),
        ({"JAX_PROCESS_ID": "1"}, "JAX_PROCESS_ID is set but JAX_COORDINATOR_ADDRESS, JAX_NUM_P"),
        (ADDRESS | SLURM | {"JAX_PROCESS_ID": "7"}, "JAX_PROCESS_ID=7"),
        (EXPLICIT | {"JAX_PROCESS_ID": "4"}, "JAX_PROCESS_ID=4 .*below JAX_NUM_PROCESSES=4"),
        (EXPLICIT | {"JAX_PROCESS_ID": "²"}, "JAX_PROCESS_ID=²"),
        (EXPLICIT | {"JAX_NUM_PROCESSES": "x"}, "JAX_NUM_PROCESSES=x"),
        ({"SLURM_STEP_NUM_TASKS": "many"}, "SLURM_STEP_NUM_TASKS='many'"),
        ({"OMPI_COMM_WORLD_SIZE": "-1"}, "OMPI_COMM_WORLD_SIZE='-1'"),
        (EXPLICIT | {"JAX_COORDINATOR_ADDRESS": "localhost"}, "ADDRESS='localhost' .*host:port"),
        (EXPLICIT | {"JAX_COORDINATOR_ADDRESS": ":1"}, "ADDRESS=':1' .*host:port"),
        (EXPLICIT | {"JAX_COORDINATOR_ADDRESS": "host:port"}, "ADDRESS='host:port' .*host:port"),
    ],
)
def test_an_environment_that_makes_no_job_is_bad_input(environment, message):
    with pytest.raises(InputError, match=message):
        job_kind(environment)


@pytest.mark.parametrize(
    ("environment", "devices"),
    [
        ({}, None),
        (EXPLICIT, None),
        (EXPLICIT | {"CUDA_VISIBLE_DEVICES": "-1"}, None),
        ({"SLURM_STEP_NUM_TASKS": "16", "SLURM_STEP_NUM_NODES": "2", "SLURM_LOCALID": "0"}, [0]),
        ({**EXPLICIT, "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, None),  # by hand, in a batch
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "7"}, [7]),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, None),
        (OF_EIGHT, [5]),
        ({**OF_EIGHT, "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, [5]),
        ({**OF_EIGHT, "CUDA_VISIBLE_DEVICES": "5"}, [0]),  # srun --gpus-per-task=1
        ({**OF_EIGHT, "ROCR_VISIBLE_DEVICES": "5"}, [0]),
        ({**OF_EIGHT, "JAX_LOCAL_DEVICE_IDS": "2,3"}, None),  # which jax reads itself
        (ALONE, None),  # nobody names them: jax takes the first
        ({**ALONE, "CUDA_VISIBLE_DEVICES": "0,1,2,3"}, [0, 1, 2, 3]),
        ({**ALONE, "HIP_VISIBLE_DEVICES": "4,5"}, [0, 1]),
        ({**ALONE, "CUDA_VISIBLE_DEVICES": "0,1", "JAX_LOCAL_DEVICE_IDS": "1"}, None),
    ],
)
def test_a_process_has_one_device_where_it_shares_its_host_and_else_all(environment, devices):
    assert local_devices(environment) == devices


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        (EXPLICIT, "3 of 4"),
        (SLURM, "3 of 4"),
        ({}, "? of ?"),
        # mpirun within a step of Slurm
        (ADDRESS | {"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "0"} | OPEN_MPI, "3 of 4"),
    ],
)
def test_a_process_knows_its_name_whatever_started_it(environment, name):
    assert process_name(environment).startswith(f"process {name} (")


def test_jax_is_given_the_job(monkeypatch):
    options = {}
    monkeypatch.setattr(jax.distributed, "initialize", lambda **given: options.update(given))
    assert start_distributed({}) is None and not options
    assert start_distributed(ALONE | {"CUDA_VISIBLE_DEVICES": "0,1"}) == "Slurm"
    assert options["local_device_ids"] == [0, 1] and "process_id" not in options
    assert start_distributed(EXPLICIT) == "explicit"
    assert (options["coordinator_address"], options["num_processes"]) == ("localhost:1234", 4)
    assert (options["process_id"], options["cluster_detection_method"]) == (3, "deactivate")


def test_processes_that_do_not_come_are_no_bad_input(monkeypatch, tmp_path, capsys):
    """Code 2 would say that another try is of no use."""

    def initialize(**options):
        raise RuntimeError("DEADLINE_EXCEEDED: Barrier timed out.")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    with pytest.raises(NotJoined, match="could not join the explicit job: DEADLINE_EXC"):
        start_distributed(EXPLICIT)
    for name, value in {**EXPLICIT, BEGAN: "0.0"}.items():
        monkeypatch.setenv(name, value)
    assert main(["train", "tiny", "--run-dir", str(tmp_path / "new")]) == 1
    assert "error: could not join the explicit job" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_becomes_a_flag_and_the_handlers_come_back(number):
    before = signal.getsignal(number)
    with StopSignal() as stop:
        assert stop.received is None
        os.kill(os.getpid(), number)
        assert stop.received == signal.Signals(number).name
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_means_now():
    before = signal.getsignal(signal.SIGINT)  # ignored where the tests run in the background
    with pytest.raises(KeyboardInterrupt), StopSignal():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
