"""Starting: jax.distributed from the environment.

Found in the environment:
    explicit   JAX_COORDINATOR_ADDRESS=host:port JAX_NUM_PROCESSES=4 JAX_PROCESS_ID=0
    Slurm      srun scaling train ...          (from SLURM_STEP_NUM_TASKS)
    Open MPI   mpirun -x JAX_COORDINATOR_ADDRESS=host:port scaling train ...
               (without the address: what jax itself finds out, with Open MPI before 5)
"""

import os
import socket
from collections.abc import Mapping
from typing import Any

from scaling.meshes.errors import InputError, is_count

# Seconds of silence after which a process counts as gone; jax's own default is 100. The others
# shall end within a minute; threads of XLA send the heartbeats, so that no compiling delays them.
HEARTBEAT = 20
EXPLICIT = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
GIVEN_BY_LAUNCHERS = {  # read for the explicit ones, once the address is set
    "JAX_NUM_PROCESSES": ("OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"),
    "JAX_PROCESS_ID": ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID"),
}
VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
LOCAL_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")  # this process among its host's


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
    options: dict[str, Any] = {"local_device_ids": local_devices(env) or _all_visible(env)}
    if kind == "explicit":
        address, count, index = (_explicit(env)[name] for name in EXPLICIT)
        options = {
            "coordinator_address": address,
            "num_processes": int(count),
            "process_id": int(index),
            "local_device_ids": local_devices(env),
            "cluster_detection_method": "deactivate",  # would take one device where we say all
        }
    try:
        jax.distributed.initialize(**options, heartbeat_timeout_seconds=HEARTBEAT)
    except (RuntimeError, ValueError) as error:
        failure = NotJoined if isinstance(error, RuntimeError) else InputError
        raise failure(
            f"could not join the {kind} job: {error} Give every process the address of the first "
            "one: JAX_COORDINATOR_ADDRESS=host:port (mpirun -x JAX_COORDINATOR_ADDRESS=...)"
        ) from None
    return kind


def job_kind(env: Mapping[str, str]) -> str | None:
    """The launcher that started this process as one of several, or None.

    Raises:
        InputError: only some of the explicit variables are set, or one is not a number.
    """
    if any(env.get(name) for name in EXPLICIT):
        variables = _explicit(env)
        missing = [name for name in EXPLICIT if name not in variables]
        if missing:
            raise InputError(f"{', '.join(variables)} is set but {', '.join(missing)} is not")
        _check_ids(variables)
        return "explicit"
    if _count(env, "SLURM_STEP_NUM_TASKS") > 1:
        return "Slurm"
    return "Open MPI" if _count(env, "OMPI_COMM_WORLD_SIZE") > 1 else None


def local_devices(env: Mapping[str, str]) -> list[int] | None:
    """The one accelerator of a process that shares its host with others of its job; None for all.

    Open MPI sets the number on this host, Slurm the number of nodes: with more
    processes than nodes each is taken to have one accelerator, which is the only one that it sees
    where Slurm bound it. JAX_LOCAL_DEVICE_IDS, which jax reads, goes before.
    """
    if env.get("JAX_LOCAL_DEVICE_IDS"):
        return None
    several = (
        _count(env, "OMPI_COMM_WORLD_LOCAL_SIZE") > 1,
        _count(env, "SLURM_STEP_NUM_TASKS") > _count(env, "SLURM_STEP_NUM_NODES"),
    )
    ranks = zip(LOCAL_RANK, several, strict=True)
    local_ranks = [env[name] for name, shared in ranks if shared and env.get(name)]
    alone = len(_visible(env)) == 1
    return [0 if alone else int(local_ranks[0])] if local_ranks else None


def _all_visible(env: Mapping[str, str]) -> list[int] | None:
    """All by number, as far as the launcher names them; otherwise jax takes one in such jobs."""
    set_by_user = bool(env.get("JAX_LOCAL_DEVICE_IDS"))
    return None if set_by_user else list(range(len(_visible(env)))) or None


def _visible(env: Mapping[str, str]) -> list[str]:
    """The GPUs that a launcher lets this process see."""
    devices = next((env[name] for name in VISIBLE if env.get(name)), "")
    return [device for device in devices.split(",") if device]


def coordinator_of_others(env: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """Host and port of the coordinator; None if it is this process, or only jax knows it."""
    if job_kind(env) != "explicit":
        return None
    variables = _explicit(env)
    host, _, port = variables["JAX_COORDINATOR_ADDRESS"].rpartition(":")
    return None if variables["JAX_PROCESS_ID"] == "0" else (host, int(port))


def process_name(env: Mapping[str, str] = os.environ) -> str:
    """Name of this process in its job: `process 1 of 4 (node7)`."""
    variables = _with_launchers(env)
    index, count = (variables.get(name, "?") for name in ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"))
    return f"process {index} of {count} ({socket.gethostname()})"


def _explicit(env: Mapping[str, str]) -> dict[str, str]:
    """The explicit variables; with an address, also those that launchers set by other names."""
    if env.get("JAX_COORDINATOR_ADDRESS"):
        return _with_launchers(env)
    return {name: env[name] for name in EXPLICIT if env.get(name)}


def _with_launchers(env: Mapping[str, str]) -> dict[str, str]:
    """The explicit variables that are set, by their own name or by a launcher's."""
    names = {name: (name, *GIVEN_BY_LAUNCHERS.get(name, ())) for name in EXPLICIT}
    values = {name: [env[n] for n in own if env.get(n)] for name, own in names.items()}
    return {name: first[0] for name, first in values.items() if first}


def _count(env: Mapping[str, str], name: str) -> int:
    """The number in an environment variable; 1 where it is not set."""
    text = env.get(name) or "1"
    if not is_count(text):
        raise InputError(f"the environment has {name}={text!r}, which is not a number of processes")
    return int(text)


def _check_ids(variables: Mapping[str, str]) -> None:
    address, count, index = (variables[name] for name in EXPLICIT)
    host, _, port = address.rpartition(":")
    if not (host and is_count(port)):
        raise InputError(
            f"JAX_COORDINATOR_ADDRESS={address!r} must be host:port, such as node0:1234"
        )
    if not (is_count(count) and is_count(index) and int(index) < int(count)):
        raise InputError(f"JAX_PROCESS_ID={index} must be a number below JAX_NUM_PROCESSES={count}")
