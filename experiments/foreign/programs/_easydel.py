"""What the programs of EasyDeL share: a model's state laid out by its own rules, and the step."""

import jax
import jax.numpy as jnp
import optax
from easydel.infra.loss_utils import LossConfig
from easydel.trainers.trainer._fn import training_step
from eformer.escale import get_corrected_named_sharding, match_partition_rules
from flax import nnx


def training(kind, config, batch, length):
    """Return the jitted step of EasyDeL's Trainer and its arguments, all of them shapes."""
    model = kind.lazy_init(
        config=config, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0)
    )
    optimizer, mesh = optax.adamw(1e-5), model.mesh
    state = model.to_state()
    state = state.replace(
        tx=optimizer, opt_state=jax.eval_shape(optimizer.init, state.graphstate), step=jnp.int32(0)
    )
    specs = match_partition_rules(model._get_partition_rules(None), state)
    place = lambda x, spec: jax.ShapeDtypeStruct(
        x.shape, x.dtype, sharding=get_corrected_named_sharding(x.shape, spec)
    )
    with mesh:
        state = jax.tree.map(place, state, specs)
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(("dp", "fsdp"), "sp"))
    array = lambda: jax.ShapeDtypeStruct((batch, length), jnp.int32, sharding=rows)
    examples = {name: array() for name in ("input_ids", "attention_mask", "labels")}
    step = jax.jit(training_step, static_argnums=(2, 3, 4, 5, 6), donate_argnums=0)
    return mesh, step, (state, examples, LossConfig(), None, None, 1, None)
