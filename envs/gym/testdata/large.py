"""Environments with large observations, with Python's standard library."""
from array import array

from spaces import Box, Discrete


class Large:
    """A plane of so many values, all of which are the number of the step. Every step does some work."""

    def __init__(self, size=84 * 84, image=False):
        self.image, self.size = image, size
        self.observation_space = Box(0, 255, (4, size // 4), "uint8") if image else Box(0, 1e6, (size,), "float32")
        self.action_space = Discrete(2)
        self.steps = 0

    def obs(self):
        work = 0
        for k in range(300):
            work += k * k
        if self.image:
            return bytes([self.steps % 256]) * self.size
        return array("f", [self.steps]) * self.size

    def reset(self, seed=None, options=None):
        self.steps = 0
        return self.obs(), {}

    def step(self, action):
        self.steps += 1
        return self.obs(), 1.0, False, self.steps >= 100, {}


def make_env(**kwargs):
    return Large(**kwargs)


def make_bytes(**kwargs):
    return Large(image=True, **kwargs)
