"""Bandwidths that were measured in a job: whatever prices a collective takes them."""

import inspect

import pytest

import scaling as sc
from scaling.meshes.errors import InputError

SLOW = [{"collective": "all-gather", "ranks": 8, "bytes": 2**30, "bus_bandwidth": 10e9}]
HLO = """HloModule step, is_scheduled=true, num_partitions=8
ENTRY %main (x: bf16[8388608]) -> bf16[67108864] {
  %x = bf16[8388608]{0} parameter(0)
  ROOT %all-gather = bf16[67108864]{0} all-gather(%x), replica_groups={{0,1,2,3,4,5,6,7}}, \
dimensions={0}, channel_id=1, use_global_device_ids=true
}"""
PRICED = (
    *("predict", "scaling_curves", "plan", "plan_step", "predict_step", "predict_hlo"),
    *("price_collective", "limits", "serve", "array"),
)


@pytest.mark.parametrize("name", PRICED)
def test_what_prices_a_collective_takes_them(name):
    assert "measured" in inspect.signature(getattr(sc, name)).parameters


def test_they_are_what_is_priced():
    factor = lambda of: of(measured=SLOW) / of(measured=None)
    hlo = lambda measured: float(sc.predict_hlo(HLO, "dgx-h100", measured=measured).step_time)
    assert factor(hlo) > 10
    limits = lambda measured: sc.limits("llama3-8b", "dgx-h100", measured=measured).answer
    assert factor(limits) > 10
    sharded = {"mesh": "X=8", "shape": "I=65536,J=4096", "cluster": "dgx-h100"}
    array = lambda measured: sc.array("A[I_X,J] -> A[I,J]", **sharded, measured=measured).answer
    assert factor(array) > 10
    summed = [{**SLOW[0], "collective": "all-reduce"}]
    case = {"batch": 256, "context": 1024, "cluster": "dgx-h100"}
    assert (
        sc.serve("llama3-70b", **case, measured=summed).answer
        > sc.serve("llama3-70b", **case).answer
    )
    with pytest.raises(InputError, match="those of a cluster"):
        sc.array("A[I_X,J] -> A[I,J]", mesh="X=8", shape="I=8,J=8", measured=SLOW)
