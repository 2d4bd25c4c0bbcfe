"""An environment with numbers in its infos, with Python's standard library."""
from spaces import Box, Discrete


class Number(object):
    """What numpy's scalars are like: a number, with a shape, that is none of Python's."""
    shape = ()

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return float(self.value)


class Row(Number):
    shape = (1,)


values = {
    "text": "yes", "array": [1, 2], "row": Row(1), "nan": float("nan"), "inf": -float("inf"), "huge": 10 ** 400, "dict": {"r": 1.0}, "object": object(),
}


class Infos:
    """An episode has three steps, after which action 1 is a success. In each other episode there is a score."""

    def __init__(self, which="", info=None):
        self.observation_space, self.action_space = Box(-1000, 1000, (1,)), Discrete(2)
        self.which, self.info, self.steps, self.episodes = which, info, 0, -1

    def reset(self, seed=None, options=None):
        self.steps = 0
        self.episodes += 1
        return [0.0], {"is_success": "not read", "score": "neither"}

    def step(self, action):
        self.steps += 1
        over = self.steps == 3
        if self.which == "list":
            return [float(self.steps)], 1.0, over, False, []
        info = {"is_success": action == 1 if over else "only the last step matters", "episode": {"r": 1.0, "l": 3}, "none": None, "half": 0.5}
        if over and self.episodes % 2 == 0:
            info["score"] = Number(self.episodes + 0.5)
        if self.which:
            info["wrong"] = values[self.which]
        return [float(self.steps)], 1.0, over, False, info


def make_env(**kwargs):
    return Infos(**kwargs)
