"""Starting: jax.distributed from the environment.

Found in the environment:
    explicit   JAX_COORDINATOR_ADDRESS=host:port JAX_NUM_PROCESSES=4 JAX_PROCESS_ID=0
    Slurm      srun scaling train ...          (from SLURM_STEP_NUM_TASKS)
    Open MPI   mpirun -x JAX_COORDINATOR_ADDRESS=host:port scaling train ...
               (without the address: what jax itself finds out, with Open MPI before 5)
"""

import ipaddress
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from scaling.meshes.errors import InputError, is_count

# Seconds of silence after which a process counts as gone; jax's own default is 100. The others
# shall end within a minute; threads of XLA send the heartbeats, so that no compiling delays them.
HEARTBEAT = 20
JOIN = 300  # s for all processes to come; jax's own default
ADDRESS = "JAX_COORDINATOR_ADDRESS"
BIND_ADDRESS = "JAX_COORDINATOR_BIND_ADDRESS"  # jax's own; [::]:port listens on every interface
SIZES = {"Slurm": "SLURM_STEP_NUM_TASKS", "Open MPI": "OMPI_COMM_WORLD_SIZE"}  # processes of a job
# And the launchers' names for them, read once the address is set. Open MPI's first: mpirun inside a
# Slurm allocation leaves its processes the variables of the step around it.
EXPLICIT = {
    ADDRESS: (),
    "JAX_NUM_PROCESSES": (SIZES["Open MPI"], SIZES["Slurm"]),
    "JAX_PROCESS_ID": ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID"),
}
VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


class NotJoined(InputError):
    """The other processes did not come; another time they may."""


def start_distributed(env: Mapping[str, str] = os.environ) -> str | None:
    """Join the other processes of this job, if the environment names any.

    Returns:
        How the job was found ("explicit", "Slurm", "Open MPI"), or None for a single process.

    Raises:
        InputError: the environment is incomplete, or not understood.
        NotJoined: the coordinator cannot be reached, or not all came in time.
    """
    kind = job_kind(env)
    if kind is None:
        return None
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", True)  # see launch.stopping
    options: dict[str, Any] = {"local_device_ids": local_devices(env)}
    if kind == "explicit":
        address, count, index = _variables(env).values()
        options |= {"coordinator_address": address, "num_processes": int(count)}
        options |= {"process_id": int(index), "cluster_detection_method": "deactivate"}
        if index == "0" and not env.get(BIND_ADDRESS):
            options["coordinator_bind_address"] = bind_address(address)
    try:
        jax.distributed.initialize(
            **options, initialization_timeout=JOIN, heartbeat_timeout_seconds=HEARTBEAT
        )
    except (RuntimeError, ValueError) as error:
        failure = NotJoined if isinstance(error, RuntimeError) else InputError
        raise failure(
            f"could not join the {kind} job: {error} Give every process the address of the first "
            f"one: {ADDRESS}=host:port (mpirun -x {ADDRESS}=...)"
        ) from None
    return kind


def bind_address(address: str) -> str | None:
    """Where the coordinator of `address` (host:port) listens: on the interface of that host alone.

    None, on every interface, if the host is not one of this machine's (a service of Kubernetes
    stands for it), or is a name of its loopback interface, which Debian gives to its own name and
    which others do not reach.
    """
    host, _, port = address.rpartition(":")
    try:
        interfaces = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    for family, kind, _, _, where in interfaces:
        ip = str(where[0])
        own_name = ipaddress.ip_address(ip).is_loopback and host not in ("localhost", ip, f"[{ip}]")
        with socket.socket(family, kind) as trial, suppress(OSError):
            trial.bind((ip, 0))
            return None if own_name else f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
    return None


def job_kind(env: Mapping[str, str]) -> str | None:
    """The launcher that started this process as one of several, or None.

    Raises:
        InputError: only some of the explicit variables are set, or one is not a number.
    """
    if any(env.get(name) for name in EXPLICIT):
        variables = _variables(env)
        missing = [name for name in EXPLICIT if name not in variables]
        if missing:
            raise InputError(f"{', '.join(variables)} is set but {', '.join(missing)} is not")
        address, count, index = variables.values()
        host, _, port = address.rpartition(":")
        if not (host and is_count(port)):
            raise InputError(f"{ADDRESS}={address!r} must be host:port, such as node0:1234")
        if not (is_count(count) and is_count(index) and int(index) < int(count)):
            raise InputError(
                f"JAX_PROCESS_ID={index} must be a number below JAX_NUM_PROCESSES={count}"
            )
        return "explicit"
    return next((kind for kind, name in SIZES.items() if _count(env, name) > 1), None)


def local_devices(env: Mapping[str, str]) -> list[int] | None:
    """The accelerators of this process, by number on its host; None for those that jax takes.

    One, where processes of the job share the host: Open MPI sets their number, Slurm that of the
    nodes, and more processes than nodes are taken to have one each (the only one that it sees,
    where Slurm bound it). Otherwise all that the launcher names, of which jax would take one.
    JAX_LOCAL_DEVICE_IDS, which jax reads, goes before.
    """
    if env.get("JAX_LOCAL_DEVICE_IDS"):
        return None
    named = next((env[name] for name in VISIBLE if env.get(name)), "").split(",")
    visible = list(range(sum(bool(name) and name[0] != "-" for name in named)))  # -1: none
    local_ranks = {
        "OMPI_COMM_WORLD_LOCAL_RANK": _count(env, "OMPI_COMM_WORLD_LOCAL_SIZE") > 1,
        "SLURM_LOCALID": _count(env, SIZES["Slurm"]) > _count(env, "SLURM_STEP_NUM_NODES"),
    }
    for rank, shared in local_ranks.items():
        if shared and env.get(rank):
            return visible if len(visible) == 1 else [int(env[rank])]
    return visible or None


def coordinator_of_others(env: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """Host and port of the coordinator; None if it is this process, or only jax knows it."""
    if job_kind(env) != "explicit":
        return None
    address, _, index = _variables(env).values()
    host, _, port = address.rpartition(":")
    return None if index == "0" else (host, int(port))


def process_name(env: Mapping[str, str] = os.environ) -> str:
    """Name of this process in its job: `process 1 of 4 (node7)`."""
    variables = _variables(env)
    index, count = (variables.get(name, "?") for name in ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"))
    return f"process {index} of {count} ({socket.gethostname()})"


def _variables(env: Mapping[str, str]) -> dict[str, str]:
    """The explicit variables that are set, by their own name or by a launcher's."""
    first = lambda names: next((env[name] for name in names if env.get(name)), "")
    values = {name: first((name, *others)) for name, others in EXPLICIT.items()}
    return {name: value for name, value in values.items() if value}


def _count(env: Mapping[str, str], name: str) -> int:
    """The number in an environment variable; 1 where it is not set."""
    text = env.get(name) or "1"
    if not is_count(text):
        raise InputError(f"the environment has {name}={text!r}, which is not a number of processes")
    return int(text)
