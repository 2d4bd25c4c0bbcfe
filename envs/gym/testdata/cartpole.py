"""CartPole-v1 by the rules of Gymnasium, with nothing but Python's standard library."""
import math
import random

from spaces import Box, Discrete


class CartPole:
    """The state is drawn from a seed, or is options["state"]."""

    def __init__(self, max_steps=500, render_mode=None):
        high = [4.8, math.inf, 24 * math.pi / 180, math.inf]
        self.observation_space = Box([-h for h in high], high)
        self.action_space = Discrete(2)
        self.max_steps, self.render_mode = max_steps, render_mode
        self.rng = random.Random()
        self.state, self.steps = [0.0] * 4, 0

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = random.Random(seed)
        self.steps = 0
        if options and "state" in options:
            self.state = [float(x) for x in options["state"]]
        else:
            self.state = [self.rng.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state, {}

    def step(self, action):
        x, v, angle, turn = self.state
        force = 10.0 if action == 1 else -10.0
        cos, sin = math.cos(angle), math.sin(angle)
        temp = (force + 0.05 * (turn * turn) * sin) / 1.1
        turn_acc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * (cos * cos) / 1.1))
        acc = temp - 0.05 * turn_acc * cos / 1.1
        x, angle = x + 0.02 * v, angle + 0.02 * turn
        v, turn = v + 0.02 * acc, turn + 0.02 * turn_acc
        self.state = [x, v, angle, turn]
        self.steps += 1
        limit = 12 * 2 * math.pi / 360
        terminated = x < -2.4 or x > 2.4 or angle < -limit or angle > limit
        return self.state, 1.0, terminated, self.steps >= self.max_steps, {}

    def render(self):
        if self.render_mode != "rgb_array":
            return None
        row = [[255, 0, 0], [0, 255, 0], [0, 0, self.steps]]
        return [row, row]


class Busy(CartPole):
    """Its step takes about as long as one of an environment with numpy arrays and some wrappers."""

    def step(self, action):
        work = 0
        for k in range(320):
            work += k * k
        return CartPole.step(self, action)


def make_env(**kwargs):
    return CartPole(**kwargs)


def make_busy(**kwargs):
    return Busy(**kwargs)
