"""PPO's rollout: 65,536 cart poles stepped 128 times by a policy of 2 x 256, then one update.

FLOPs: the policy, 2 x (4 x 256 + 256^2 + 256 x 2), for 65,536 x 128 states, once in the rollout,
three times in the update, less its gradient of the states (Schulman et al., arXiv 1707.06347).
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

POLES, T, WIDTH = 65_536, 128, 256
SHAPES = (4, WIDTH), (WIDTH, WIDTH), (WIDTH, 2)


def policy(weights, s):
    return jnp.tanh(jnp.tanh(s @ weights[0]) @ weights[1]) @ weights[2]


def physics(s, action):
    x, v, angle, spin = jnp.moveaxis(s, -1, 0)
    force = 10.0 * (2 * action - 1)
    pull = (force + 0.05 * spin**2 * jnp.sin(angle)) / 1.1
    turn = (9.8 * jnp.sin(angle) - jnp.cos(angle) * pull) / (
        0.5 * (4 / 3 - jnp.cos(angle) ** 2 / 11)
    )
    return s + 0.02 * jnp.stack([v, pull, spin, turn], -1)


@jax.jit
def step(weights, states, key):
    def act(s, key):
        logits = policy(weights, s)
        action = jax.random.categorical(key, logits)
        return physics(s, action), (s, action, jax.nn.log_softmax(logits))

    last, (seen, actions, old) = jax.lax.scan(act, states, jax.random.split(key, T))
    reward = -jnp.abs(seen[..., 2])
    gain = jnp.flip(jnp.cumsum(jnp.flip(reward, 0), 0), 0)
    pick = lambda logp: jnp.take_along_axis(logp, actions[..., None], -1)[..., 0]

    def loss(weights):
        ratio = jnp.exp(pick(jax.nn.log_softmax(policy(weights, seen))) - pick(old))
        return -jnp.minimum(ratio * gain, jnp.clip(ratio, 0.8, 1.2) * gain).mean()

    return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, jax.grad(loss)(weights)), last


PRODUCTS = sum(2 * a * b for a, b in SHAPES)
WORK = Work(POLES * T * (4 * PRODUCTS - 2 * 4 * WIDTH), dtype="tf32")
NOTE = "hidden layers are 256 wide: memory and launches bound it, not products"


def price() -> sc.Prediction:
    weights = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in SHAPES]
    states = jax.ShapeDtypeStruct((POLES, 4), jnp.float32)
    return sc.predict_step(step, weights, states, jax.random.key(0), cluster="dgx-h100")
