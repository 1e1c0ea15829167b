"""Whoever enters `sc.pretend`, and in whatever order they leave, jax is put back."""

import asyncio
import contextvars
import gc
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from types import SimpleNamespace
from unittest.mock import patch

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaling as sc
from scaling.compile.pretend import pretend as pretending
from scaling.compile.pretend.entries import changing_jax
from scaling.meshes.errors import InputError

THREADS, TASKS = 2, 2  # tasks of a thread, each with a context of its own
ACTORS = [(thread, task) for thread in range(THREADS) for task in range(TASKS)]
MOVES = st.lists(st.tuples(st.sampled_from(ACTORS), st.sampled_from("enter leave".split())))


def generator(jax_, value):
    with changing_jax() as changes:
        changes.enter_context(patch.object(jax_, "devices", value))
        yield


class Actors:
    """Threads with tasks that enter by generators, which anybody may close."""

    def __init__(self) -> None:
        self.jax = SimpleNamespace(devices="own")
        self.pools = [ThreadPoolExecutor(1) for _ in range(THREADS)]
        self.contexts = {actor: contextvars.Context() for actor in ACTORS}
        self.entered: list[tuple[tuple[int, int], int, object]] = []  # in order; not left yet

    def run(self, actor, function):
        return self.pools[actor[0]].submit(self.contexts[actor].run, function).result()

    def enter(self, actor, number: int) -> bool:
        """Return whether it was let in; then it sees what it has put there."""
        made = generator(self.jax, number)
        try:
            self.run(actor, lambda: next(made))
        except InputError:
            return False
        self.entered.append((actor, number, made))
        assert self.jax.devices == number
        return True

    def leave(self, actor, which: int) -> None:
        _, _, made = self.entered.pop(which % len(self.entered))
        self.run(actor, made.close)


@given(MOVES, st.randoms(use_true_random=False))
def test_in_any_order_of_entering_and_leaving_jax_is_put_back(moves, random):
    actors = Actors()
    for number, (actor, move) in enumerate(moves):
        if move == "enter":
            inside = actors.entered[-1][0] if actors.entered else actor
            assert actors.enter(actor, number) == (inside == actor)
        elif actors.entered:  # by anybody, in any order
            actors.leave(actor, random.randrange(len(actors.entered)))
        if actors.entered:
            assert actors.jax.devices == actors.entered[-1][1]
        else:
            assert actors.jax.devices == "own"
    while actors.entered:
        actors.leave(random.choice(ACTORS), random.randrange(len(actors.entered)))
    assert actors.jax.devices == "own"
    for actor in ACTORS:
        assert actors.enter(actor, -1)
        actors.leave(actor, 0)
    for pool in actors.pools:
        pool.shutdown()


def test_a_thread_that_ends_inside_keeps_nobody_out():
    here, kept = SimpleNamespace(devices="own"), []

    def work():
        kept.append(generator(here, "theirs"))
        next(kept[0])

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert here.devices == "theirs"
    with changing_jax():
        assert here.devices == "own"
    kept.clear()
    gc.collect()
    assert here.devices == "own"


def test_a_change_that_fails_is_undone_and_keeps_nobody_out():
    here = SimpleNamespace(devices="own")
    with pytest.raises(AttributeError), changing_jax() as changes:
        changes.enter_context(patch.object(here, "devices", 1))
        changes.enter_context(patch.object(here, "missing", 1))
    assert here.devices == "own"
    with changing_jax():
        pass


@pytest.fixture
def cluster(monkeypatch):
    """What `sc.pretend` takes for absent devices are those of the CPU: nothing is compiled."""
    monkeypatch.setattr(pretending, "absent_devices", lambda count, _: jax.local_devices()[:count])


def own_parts():
    """Whatever `sc.pretend` changes of jax."""
    names = ["devices", "device_count", "make_mesh", "pmap", "device_put", "process_count"]
    shape, device = vars(jax.ShapeDtypeStruct), vars(type(jax.devices("cpu")[0]))
    parts = [getattr(jax, name) for name in names]
    return [*parts, jnp.stack, jax.distributed.initialize], dict(shape), dict(device)


def test_tasks_that_overlap_are_refused_and_jax_is_put_back(cluster):
    before, said = own_parts(), []

    async def task(wait: float, turns: int):
        for _ in range(wait):
            await asyncio.sleep(0)
        try:
            with sc.pretend("dgx-h100"):
                for _ in range(turns):
                    await asyncio.sleep(0)
                said.append("was inside")
        except InputError as error:
            said.append(str(error))

    async def both():
        await asyncio.gather(task(0, 3), task(1, 6))

    asyncio.run(both())
    assert said[0].startswith("another task is inside sc.pretend") and said[1:] == ["was inside"]
    assert own_parts() == before
    assert float(jax.device_put(jnp.ones(3))[0] + 1) == 2


def test_an_abandoned_generator_closed_by_another_thread_leaves_jax_as_it_was(cluster):
    before = own_parts()

    def generate():
        with sc.pretend("dgx-h100"):
            yield

    made = generate()
    next(made)
    assert own_parts() != before
    thread = Thread(target=made.close)
    thread.start()
    thread.join()
    assert own_parts() == before
    enter_once()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(enter_once).result()
    assert own_parts() == before


def enter_once():
    with sc.pretend("dgx-h100"):
        pass


def test_the_outer_of_two_may_leave_first(cluster):
    before = own_parts()
    outer, inner = sc.pretend("dgx-h100"), sc.pretend("dgx-h100")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert own_parts() != before
    inner.__exit__(None, None, None)
    assert own_parts() == before
