"""The work of factorisations and sorts, from their shapes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.hlo.passes import NOMINAL, TILE, network_passes
from scaling.hlo.reader import read_program
from scaling.hlo.user_hints import Work
from scaling.meshes import catalog
from scaling.profiles.io import profile_of
from scaling.program.ir import Kernel, Program
from scaling.simulate.step import price
from scaling.simulate.uncertainty import grade, step_range
from tests.scaling.hlo.texts import text

N = 1024
A100 = catalog.load("dgx-a100")


def kernel(main: str, **others: str) -> Kernel:
    found = read_program(text(main, **others), {"data": 1}, "m").schedule[0]
    assert isinstance(found, Kernel)
    return found


def call(target: str, *shapes: str, config: str = "{}") -> Kernel:
    parameters = "; ".join(f"p{i} = {shape} parameter({i})" for i, shape in enumerate(shapes))
    names = ", ".join(f"%p{i}" for i in range(len(shapes)))
    rest = f'custom_call_target="{target}", backend_config={config}'
    return kernel(f"{parameters}; r = {shapes[0]} custom-call({names}), {rest}")


SQUARE = f"f32[{N},{N}]"


@pytest.mark.parametrize(
    ("target", "shapes", "flops"),
    [
        ("cusolver_potrf_ffi", [SQUARE], N**3 / 3),
        ("cusolver_potrf_ffi", [f"f32[8,{N},{N}]"], 8 * N**3 / 3),
        ("cusolver_getrf_ffi", [SQUARE], 2 * N**3 / 3),
        ("cusolver_geqrf_ffi", [f"f32[{4 * N},{N}]"], (8 - 2 / 3) * N**3),
        ("cusolver_geqrf_ffi", [f"c64[{4 * N},{N}]"], 4 * (8 - 2 / 3) * N**3),
        ("cusolver_orgqr_ffi", [SQUARE], 4 * N**3 / 3),
        ("cusolver_syevd_ffi", [SQUARE], 10 * N**3 / 3),
        ("cusolver_gesvd_ffi", [SQUARE], 8 / 3 * N**3),
        ("cusolver_gesvd_ffi", [f"f32[{N},{4 * N}]"], (8 + 2) * N**3),
        ("cusolver_gesvdj_ffi", [f"f32[{N},{2 * N}]"], 8 * N**3),
        ("cusolver_gesvdp_ffi", [SQUARE], (4 + 1 / 3 + 2 + 10 / 3) * N**3),
        ("__cublas$triangularSolve", [SQUARE, f"f32[{N},64]"], N**2 * 64),
    ],
)
def test_factorisations_count_their_flops_and_go_column_by_column(target, shapes, flops) -> None:
    found = call(target, *shapes)
    assert found.flops == pytest.approx(flops)
    assert (found.dtype, found.unknown) == ("fp32", "")
    assert found.chain > 0 and found.error > 1 and not found.is_timed


@given(
    target=st.sampled_from(["potrf", "getrf", "geqrf", "syevd", "gesvd", "gesvdj", "gesvdp"]),
    n=st.integers(33, 4000),
    batch=st.integers(1, 8),
    dtype=st.sampled_from(["f32", "f64", "c64"]),
)
def test_a_factorisation_never_gets_faster_by_more_work(target, n, batch, dtype) -> None:
    target = f"cusolver_{target}_ffi"
    ends = []
    for shape in (f"[{n},{n}]", f"[{batch},{n},{n}]", f"[{batch},{n + 1},{n + 1}]"):
        found = replace(call(target, dtype + shape), reads=(), writes=())
        made = Program("p", "compiled", {"data": 1}, (found,))
        priced = price(made, A100, profile_of(A100.accelerator))
        low, high = step_range(priced)
        assert low < priced.timeline.total < high < np.inf
        assert grade(priced) == "datasheet"
        ends.append((low, priced.timeline.total, high))
    assert ends[0] <= ends[1] < ends[2]


@pytest.mark.parametrize(
    ("target", "n", "larger"),
    [
        ("cusolver_geqrf_ffi", 512, 516),
        ("cusolver_getrf_ffi", 512, 516),
        ("cusolver_gesvdj_ffi", 32, 33),
        ("__cublas$triangularSolve", 2048, None),
    ],
)
def test_a_batch_in_one_call_is_between_one_matrix_and_all_in_turn(target, n, larger) -> None:
    alone, batch = call(target, f"f32[{n},{n}]"), call(target, f"f32[4,{n},{n}]")
    ends = batch.chain / batch.error, batch.chain * batch.error
    assert ends == pytest.approx((alone.chain / alone.error, 4 * alone.chain * alone.error))
    if larger:
        in_turn = call(target, f"f32[4,{larger},{larger}]")
        assert in_turn.error == alone.error and in_turn.chain > 4 * alone.chain


def test_a_tridiagonal_form_alone_was_timed_by_nobody() -> None:
    assert call("cusolver_sytrd_ffi", SQUARE).unknown == "cusolver_sytrd_ffi"


def test_what_the_caller_says_goes_before_published_times() -> None:
    written = text(
        f"p = {SQUARE} parameter(0); r = {SQUARE} custom-call(%p), "
        'custom_call_target="cusolver_potrf_ffi"'
    )
    given = {"cusolver_potrf_ffi": Work(flops=1e9, dtype="fp32")}
    (found,) = read_program(written, {"data": 1}, "m", kernels=given).schedule
    assert isinstance(found, Kernel) and (found.flops, found.chain) == (1e9, 0)


@pytest.mark.parametrize(
    ("target", "shape", "full", "cubes"),
    [
        # Golub and Van Loan, 5.4.5 and 8.6.3: 14 m n^2 + 8 n^3; 6 m n^2 + 20 n^3; both vectors
        ("cusolver_gesvd_ffi", SQUARE, "false", 22),
        ("cusolver_gesvd_ffi", f"f32[{4 * N},{N}]", "false", 44),
        ("cusolver_gesvd_ffi", SQUARE, "true", 21),
        ("cusolver_gesvd_ffi", f"f32[{4 * N},{N}]", "true", 64 + 22),
        ("cusolver_gesvdj_ffi", SQUARE, "false", 7),
        ("cusolver_gesvdp_ffi", SQUARE, "false", 4 + 1 / 3 + 2 + 10 / 3 + 2),
    ],
)
def test_singular_vectors_are_counted_by_the_method(target, shape, full, cubes) -> None:
    config = f"{{compute_uv = true, full_matrices = {full}}}"
    found = call(target, shape, config=config)
    assert found.flops == pytest.approx(cubes * N**3)
    assert found.chain > 0 and not found.unknown


@pytest.mark.parametrize(
    ("algorithm", "n", "cubes"), [(0, 32, 6), (0, 33, 10 / 3), (1, 16, 10 / 3), (2, N, 6)]
)
def test_eigenvectors_are_counted_by_the_method(algorithm: int, n: int, cubes: float) -> None:
    config = f"{{algorithm = {algorithm} : ui8, lower = true}}"
    found = call("cusolver_syevd_ffi", f"f32[{n},{n}]", config=config)
    assert found.flops == pytest.approx(cubes * n**3)


@pytest.mark.parametrize(
    "target", ["cu_lu_pivots_to_permutation", "cu_threefry2x32_ffi", "PadToStatic"]
)
def test_calls_that_move_what_they_read_are_known(target: str) -> None:
    found = call(target, "u32[1024]")
    assert (found.unknown, found.chain, found.is_timed) == ("", 0, True)


def test_a_block_of_threads_walks_the_row_of_a_top_k() -> None:
    short, long = (call("__gpu$TopK", f"bf16[64,{n}]") for n in (1024, 32768))
    assert long.chain - short.chain == pytest.approx(3.4e-9 * (32768 - 1024))
    assert not long.unknown and long.error == 4


def test_a_factorisation_of_no_matrix_is_only_a_call() -> None:
    found = call("cusolver_potrf_ffi", "f32[8]")
    assert (found.flops, found.unknown) == (0, "cusolver_potrf_ffi")


def test_a_network_goes_over_what_is_wider_than_a_tile_again_and_again() -> None:
    assert [network_passes(n) for n in (1, 2, TILE // 2, TILE)] == [1, 1, 1, 1]
    # each wider stage has one wide exchange more, and those inside a tile together
    assert network_passes(2 * TILE) == 3
    assert network_passes(4 * TILE) == 6
    assert network_passes(8 * TILE) == 10


def sort(arrays: int, length: int, used: int = 0) -> Kernel:
    """A sort of arrays of `length` floats and of positions, of which one result is used."""
    shape = f"f32[{length}]"
    names = ", ".join(f"%p{i}" for i in range(arrays))
    parameters = "; ".join(f"p{i} = {shape} parameter({i})" for i in range(arrays))
    result = f"({', '.join([shape] * arrays)}, s32[{length}])"
    body = f"""{parameters}; i = s32[{length}] iota(), iota_dimension=0
        s = {result} sort({names}, %i), dimensions={{0}}"""
    main = f"""{parameters}; f = {result} fusion({names}), kind=kCustom, calls=%body
        r = {shape} get-tuple-element(%f), index={used}"""
    return kernel(main, body=body)


def test_a_long_sort_is_cubs_and_goes_over_its_keys_four_times() -> None:
    length = 2**20
    assert sort(1, length).bytes == (2 * 4 + 1) * 4 * length
    assert sort(2, length).bytes == (2 * 4 * 2 + 1) * 4 * length
    assert sort(1, length, used=1).bytes == sort(2, length).bytes  # argsort: positions are values
    assert sort(3, length).bytes == 2 * network_passes(length) * 4 * 4 * length
    assert sort(1, 64).bytes == 2 * 2 * 4 * 64  # one pass of a network, over the positions too


def test_a_call_of_cubs_sort_is_no_unknown_call() -> None:
    shapes = "(f32[4096], s32[4096], u8[9000])"
    main = f"""k = f32[4096] parameter(0); v = s32[4096] parameter(1)
        r = {shapes} custom-call(%k, %v), custom_call_target="__cub$DeviceRadixSort"
        e = f32[4096] get-tuple-element(%r), index=0"""
    found = kernel(main)
    assert (found.unknown, found.bytes) == ("", (2 * 4 * 2 + 1) * 4 * 4096)


def test_a_sort_of_a_cpu_moves_its_arrays_once() -> None:
    config = json.dumps({"operation_queue_id": "0"})
    plain = "x = f32[1048576] parameter(0); s = f32[1048576] sort(%x), dimensions={0}"
    assert kernel(plain).bytes == 2 * 4 * 2**20
    assert kernel(f"{plain}, backend_config={config}").bytes > 8 * 2**20


@given(n=st.integers(2, 2**22), arrays=st.integers(1, 4))
def test_a_longer_sort_never_takes_less_and_launches_its_kernels_one_by_one(n, arrays) -> None:
    short, long = (replace(sort(arrays, length), reads=(), writes=()) for length in (n, n + n // 2))
    seconds = lambda kernel: kernel.bytes / NOMINAL + kernel.chain
    assert seconds(short) <= seconds(long)
    made = Program("p", "compiled", {"data": 1}, (long,))
    priced = price(made, A100, profile_of(A100.accelerator))
    low, high = step_range(priced)
    assert low <= priced.timeline.total <= high
    assert long.chain <= priced.timeline.total
