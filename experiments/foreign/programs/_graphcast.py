"""What the programs of GraphCast share: its weather as shapes, its predictor, its work by hand.

Counts of Lam et al., arXiv 2212.12794, supplement 3: a mesh refined R times has 10 x 4^R + 2 nodes
and 20 (4^(R+1) - 1) directed edges, coarse ones with it; a point of the grid sends to 1,618,746 /
1,038,240 nodes of the mesh and hears from 3.
"""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import xarray
import xarray_jax
from weathernext.utils import autoregressive, casting, normalization
from weathernext.weathernext1_graph import graphcast

D, STEPS, LEVELS, REFINED = 512, 16, 13, 5  # width, steps on the mesh, levels of pressure
LATITUDES, LONGITUDES = 181, 360
PLACE = ("lat", "lon")
TASK = graphcast.TASK_13
SMALL = graphcast.ModelConfig(
    resolution=1, mesh_size=REFINED, latent_size=D, gnn_msg_steps=STEPS, hidden_layers=1,
    radius_query_fraction_edge_length=0.6,
)  # fmt: skip


def weights_and_flops() -> tuple[float, float]:
    """Weights of the small model, without norms and biases, and FLOPs of one step forward.

    An MLP is two products, the second D x D. A point reads 83 channels of two times, 5 forcings of
    three, 2 that stay and 3 of its place; it gives 83.
    """
    points, read, given = LATITUDES * LONGITUDES, 2 * 83 + 3 * 5 + 2 + 3, 5 + 6 * LEVELS
    nodes, edges = 10 * 4**REFINED + 2, 20 * (4 ** (REFINED + 1) - 1)
    sent, heard = points * 1_618_746 / 1_038_240, 3 * points
    mlp = lambda wide: wide * D + D**2
    products = [  # rows, and what each is multiplied with
        (points, mlp(read)), (nodes, mlp(read)), (sent, mlp(4)),
        (sent, mlp(3 * D)), (nodes, mlp(2 * D)), (points, mlp(D)), (edges, mlp(4)),
        *[(edges, mlp(3 * D)), (nodes, mlp(2 * D))] * STEPS,
        (heard, mlp(4)), (heard, mlp(3 * D)), (points, mlp(2 * D)), (points, D**2 + D * given),
    ]  # fmt: skip
    unused = mlp(D)  # the last update of the mesh's nodes: nobody reads it
    weights = sum(weight for _, weight in products) + unused
    return weights, 2 * sum(rows * weight for rows, weight in products)


def shapes(steps):
    """Return shapes of inputs, targets and forcings of `steps` of six hours, by variable."""
    fixed = {name: (LATITUDES, LONGITUDES) for name in graphcast.variables.STATIC_VARS}

    def of(name, times):
        levels = (LEVELS,) if name in graphcast.TARGET_ATMOSPHERIC_VARS else ()
        shape = fixed.get(name, (1, times, *levels, LATITUDES, LONGITUDES))
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    names = (
        (TASK.input_variables, 2),
        (TASK.target_variables, steps),
        (TASK.forcing_variables, steps),
    )
    return [{name: of(name, times) for name in which} for which, times in names]


def _dataset(arrays, first):
    """Return arrays as the package's own datasets, inside of a jitted function."""
    dims = {5: ("batch", "time", "level", *PLACE), 4: ("batch", "time", *PLACE), 2: PLACE}
    values = {name: (dims[x.ndim], x) for name, x in arrays.items()}
    times = next(x.shape[1] for x in arrays.values() if x.ndim > 2)
    coords = {
        "time": np.arange(first, first + times) * np.timedelta64(6 * 3600 * 10**9, "ns"),
        "lat": np.linspace(-90, 90, LATITUDES, dtype=np.float32),
        "lon": np.arange(LONGITUDES, dtype=np.float32),
        "level": np.array(TASK.pressure_levels),
    }
    return xarray_jax.Dataset(values, coords=coords)


def predictor():
    """Return the wrapped predictor, as in the package's demonstration."""
    levels = ("level", np.ones(LEVELS, np.float32))
    one = lambda name: levels if name in graphcast.TARGET_ATMOSPHERIC_VARS else 1.0
    names = sorted({*TASK.input_variables, *TASK.target_variables, *TASK.forcing_variables})
    where = {"level": list(TASK.pressure_levels)}
    scale = xarray.Dataset({name: one(name) for name in names}, coords=where)
    cast = casting.Bfloat16Cast(graphcast.GraphCast(SMALL, TASK))
    normal = normalization.InputsAndResiduals(
        cast, diffs_stddev_by_level=scale, mean_by_level=scale, stddev_by_level=scale
    )
    return autoregressive.Predictor(normal, gradient_checkpointing=True)


def transformed(method):
    """Return `init` and `apply` of the forecast or of its loss, on plain arrays."""

    def run(inputs, targets, forcings):
        model = predictor()
        batch = _dataset(inputs, -1), _dataset(targets, 1), _dataset(forcings, 1)
        if method == "loss":
            return xarray_jax.unwrap_data(model.loss(*batch)[0].mean(), require_jax=True)
        forecast = model(batch[0], targets_template=batch[1], forcings=batch[2])
        return {name: xarray_jax.unwrap_data(x) for name, x in forecast.items()}

    return hk.without_apply_rng(hk.transform(run))
