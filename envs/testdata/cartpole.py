"""Writes cartpole.json: trajectories of CartPole-v1 from the published equations.

An independent statement of Barto, Sutton and Anderson (1983) with Gymnasium's
constants and order of integration; initial states come from numpy itself.
Run with any Python 3 that has numpy: python3 cartpole.py > cartpole.json
"""
import json
import math
import numpy as np


def simulate(seed, policy, limit=500):
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    x, v, a, w = (float(s) for s in rng.uniform(low=-0.05, high=0.05, size=(4,)))
    states, actions, ended = [[x, v, a, w]], [], False
    while not ended and len(actions) < limit:
        act = policy(len(actions), x, v, a, w)
        push = 10.0 if act == 1 else -10.0
        s, c = math.sin(a), math.cos(a)
        temp = (push + 0.05 * w * w * s) / 1.1
        angular = (9.8 * s - c * temp) / (0.5 * (4.0 / 3.0 - 0.1 * c * c / 1.1))
        linear = temp - 0.05 * angular * c / 1.1
        x, v, a, w = x + 0.02 * v, v + 0.02 * linear, a + 0.02 * w, w + 0.02 * angular
        ended = abs(x) > 2.4 or abs(a) > 12 * 2 * math.pi / 360
        states.append([x, v, a, w])
        actions.append(act)
    return {
        "seed": seed,
        "actions": "".join(str(i) for i in actions),
        "terminated": ended,
        # Every tenth state and the last one.
        "states": {str(i): s for i, s in enumerate(states) if i % 10 == 0 or i == len(states) - 1},
    }


policies = {
    "left": lambda t, x, v, a, w: 0,
    "right": lambda t, x, v, a, w: 1,
    "alternate": lambda t, x, v, a, w: t % 2,
    "lean": lambda t, x, v, a, w: int(a > 0),
    "balance": lambda t, x, v, a, w: int(0.1 * x + 0.2 * v + a + 0.4 * w > 0),
    "drift": lambda t, x, v, a, w: int(a + 0.3 * w > 0.03),
}
rows = [dict(simulate(seed, p), policy=name) for name, p in policies.items() for seed in (0, 1, 42, 2**40 + 17)]
print(json.dumps(rows))
