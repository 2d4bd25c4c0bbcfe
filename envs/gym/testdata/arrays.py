"""Environments whose spaces and values are numpy's, for where numpy is installed."""
import numpy as np


class Box:
    def __init__(self, low, high, shape, dtype):
        self.low, self.high = np.full(shape, low, dtype=dtype), np.full(shape, high, dtype=dtype)
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)


class Discrete:
    def __init__(self, n):
        self.n, self.start, self.shape, self.dtype = np.int64(n), np.int64(0), (), np.dtype("int64")


class Dict:
    def __init__(self, **spaces):
        self.spaces, self.shape, self.dtype = spaces, None, None


class Arrays:
    """kind is box, same, gaps, image, dict, or wrong: the last returns an image of another shape in step 2. The
    array of gaps is not contiguous."""

    def __init__(self, kind="box"):
        self.kind, self.steps, self.last = kind, 0, np.zeros((2, 1), dtype=np.float32)
        self.observation_space = {
            "box": Box(-10, 10, (2, 3), "float64"), "same": Box(-10, 10, (2, 3), "float32"), "gaps": Box(-10, 10, (2, 3), "float32"),
            "image": Box(0, 255, (2, 2, 3), "uint8"), "wrong": Box(0, 255, (2, 2, 3), "uint8"),
            "dict": Dict(number=Discrete(3), matrix=Box(-1, 1, (2, 1), "float32")),
        }[kind]
        self.action_space = Box(-1, 1, (2, 1), "float32")

    def obs(self):
        if self.kind == "box":
            return np.arange(6, dtype=np.float64).reshape(2, 3) + self.steps
        if self.kind == "same":
            return np.arange(6, dtype=np.float32).reshape(2, 3) + np.float32(self.steps)
        if self.kind == "gaps":
            return (np.arange(6, dtype=np.float32).reshape(2, 3) + np.float32(self.steps)).T.copy().T
        if self.kind == "dict":
            return {"number": np.int64(self.steps % 3), "matrix": self.last}
        if self.kind == "wrong" and self.steps == 2:
            return np.zeros((2, 3, 2), dtype=np.uint8)
        return np.full((2, 2, 3), self.steps, dtype=np.uint8 if self.steps < 3 else np.int64)

    def reset(self, seed=None, options=None):
        self.steps = 0
        return self.obs(), {}

    def step(self, action):
        assert type(action) is np.ndarray and action.shape == (2, 1) and action.dtype == np.float32, repr(action)
        self.steps, self.last = self.steps + 1, action
        return self.obs(), np.float32(0.5), np.bool_(False), np.bool_(self.steps >= 5), {}


def make_env(**kwargs):
    return Arrays(**kwargs)
