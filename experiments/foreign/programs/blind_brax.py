"""Blind: brax, 4096 ants (spring physics) stepped 20 times by the policy of its PPO, acting alone.

FLOPs of an action: the policy's MLP, 2 x (27 x 32 + 3 x 32^2 + 32 x 16), the package's default, 27
observations and 2 x 8 numbers out (Freeman et al., arXiv 2106.13281). The physics is rotations and
vectors, no products of matrices: not counted, so the price must be far above the least time.
Counted, and committed, before it was priced.
"""

from importlib.metadata import version

import jax
from brax import envs
from brax.training import acting
from brax.training.agents.ppo import networks

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "others"
SOURCE = f"brax {version('brax')}"
ENVIRONMENTS, STEPS, SEEN, DONE = 4096, 20, 27, 8
WORK = Work(ENVIRONMENTS * STEPS * 2 * (SEEN * 32 + 3 * 32**2 + 32 * 2 * DONE), dtype="tf32")
NOTE = "the physics, vector work of many small kernels, is not in the count"

ant = envs.training.wrap(envs.get_environment("ant", backend="spring"), episode_length=1000)
ppo = networks.make_ppo_networks(SEEN, DONE)


@jax.jit
def unroll(policy, state, key):
    act = networks.make_inference_fn(ppo)((None, policy))
    return acting.generate_unroll(ant, state, act, key, STEPS)


def price() -> sc.Prediction:
    key = jax.random.PRNGKey(0)
    keys = jax.random.split(key, ENVIRONMENTS)
    policy, state = jax.eval_shape(ppo.policy_network.init, key), jax.eval_shape(ant.reset, keys)
    return sc.predict_step(unroll, policy, state, key, cluster="dgx-h100")
