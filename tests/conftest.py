"""Set-up of the whole session: eight fake CPU devices, one machine, Hypothesis profiles.

JAX reads the environment when it is first imported. So nothing here imports it before the
environment is set, and a test that needs no JAX never pays for it. There is no compilation cache:
JAX writes its entries in place, and two test processes could read each other's half-written ones.
"""

import gc
import importlib.util
import itertools
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import settings

DEVICES = 8  # enough for data=2, fsdp=2, tensor=2
# LLVM's code is not optimised, which takes most of the time of a compile for CPUs. XLA's program,
# its kernels and their order are the same.
QUICK = "--xla_backend_optimization_level=0"
# Kernels are written without MLIR, which takes most of what is left; a scatter becomes a loop then.
# A program is compiled in one part: in 32 beside one another a step took 2.65 s of CPU, not 2.43.
# XLA ends a process that gives it a flag that it does not know: these are those of jaxlib 0.10.
EMITTERS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
EMITTERS = EMITTERS if version("jaxlib").startswith("0.10.") else ""
# XLA ends a process whose devices do not all come to a collective within 40 s: a paused machine.
PATIENT = "--xla_cpu_collective_call_terminate_timeout_seconds=600"
# Holds a plugin of JAX that refuses, which a process finds before NVIDIA's.
NO_COMPILER = Path(__file__).parent / "no_gpu_compiler"
UNMARKED = "compiles for GPUs that are not here without the marker `deviceless`"
MAPS = Path("/proc/self/maps")  # Linux
MOST_MAPS = 20_000  # memory maps of a process; Linux ends it at 65,530 (vm.max_map_count)
LOOK_EVERY = 16  # tests: to read 20,000 maps takes longer than most tests

# The fast tests draw the same examples every time; the long tier looks for new ones.
settings.register_profile("fast", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=500, derandomize=False)
settings.load_profile("fast")
finished = itertools.count(1)
FAST_CASES = 8  # of a test, at most, in the fast tier
OTHER_TIERS = ("slow", "gpu", "browser", "deviceless")


def pytest_configure(config: pytest.Config) -> None:
    """CPU devices, except for `pytest -m gpu`; and never a part of the cluster job around us."""
    for name in [n for n in os.environ if n.startswith(("SLURM_", "OMPI_"))]:
        del os.environ[name]
    gc.disable()  # until all tests are imported
    if config.option.markexpr != "gpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["JAX_NUM_CPU_DEVICES"] = str(DEVICES)
        os.environ["XLA_FLAGS"] = " ".join(
            [os.environ.get("XLA_FLAGS", ""), QUICK, EMITTERS, PATIENT]
        )


@pytest.hookimpl(tryfirst=True)  # before -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks slow what a test has beyond FAST_CASES cases; those from the first to the last stay."""
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not any(map(item.get_closest_marker, OTHER_TIERS)):
            cases[item.nodeid.partition("[")[0]].append(item)
    for test in cases.values():
        step = max(1.0, (len(test) - 1) / (FAST_CASES - 1))
        kept = {round(step * i) for i in range(FAST_CASES)}
        for i, item in enumerate(test):
            if i not in kept:
                item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Lets the collector of garbage pass over all that was imported: a tenth of the collection."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No calibration or program of whoever runs the tests is found, and none is left behind."""
    os.environ["SCALING_CACHE"] = str(tmp_path_factory.mktemp("scaling_cache"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Without its marker neither a test nor a process that it starts compiles for absent GPUs.

    Where the extra `deviceless` is installed such a test would pass, and fail on a fresh machine.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not any(map(item.get_closest_marker, ("deviceless", "gpu"))):
            patch.setenv("PYTHONPATH", str(NO_COMPILER), prepend=os.pathsep)
            if devices := sys.modules.get("scaling.meshes.devices"):  # since the collection
                from jax.experimental import topologies

                patch.setattr(devices, "_topology", devices._topology.__wrapped__)  # not kept
                refuse = lambda **_: pytest.fail(f"{item.nodeid} {UNMARKED}")
                patch.setattr(topologies, "get_topology_desc", refuse)
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Says what a test lacks on this machine, and how to run it."""
    if item.get_closest_marker("deviceless") and not importlib.util.find_spec("jax_cuda12_plugin"):
        pytest.skip("needs the GPU compiler: pip install -e '.[dev,deviceless]' (Linux x86-64)")
    if item.get_closest_marker("gpu"):
        import jax

        if jax.default_backend() != "gpu":
            pytest.skip("needs a GPU: on a machine with one, pytest -m gpu")


def pytest_runtest_logfinish() -> None:  # after the fixtures of the test are gone
    """Forgets compiled programs before they use up the process's memory maps (500 per step)."""
    if next(finished) % LOOK_EVERY or "jax" not in sys.modules or not MAPS.exists():
        return
    if MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        sys.modules["jax"].clear_caches()
        gc.collect()
