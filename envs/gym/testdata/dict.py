"""An environment whose observations and actions have parts, with Python's standard library."""
from spaces import Box, Discrete


class MultiDiscrete:
    def __init__(self, nvec):
        self.nvec = nvec


class MultiBinary:
    def __init__(self, n):
        self.n = n


class Dict:
    def __init__(self, spaces):
        self.spaces = spaces


class Tuple:
    def __init__(self, spaces):
        self.spaces = spaces


class Parts:
    """It observes its last action, and the number of steps."""

    def __init__(self, actions="discrete", length=20):
        # The keys are not in the order of the alphabet.
        self.observation_space = Dict({
            "velocity": Box(-1, 1, (2,)),
            "gear": Discrete(3, start=-1),
            "more": Tuple([MultiDiscrete([2, 3]), MultiBinary(2), Dict({"image": Box([[0, 0], [0, 0]], [[9, 9], [9, 9]])})]),
        })
        self.kind, self.length = actions, length
        self.action_space = {
            "discrete": Discrete(2),
            "numbers": Dict({"gear": Discrete(3, start=-1), "lights": MultiBinary([2]), "seats": MultiDiscrete([2, 4])}),
            "boxes": Tuple([Box([-1, -2], [1, 2]), Dict({"matrix": Box(0, 1, (2, 2)), "one": Box(0, 5, ())})]),
            "binary": MultiBinary(3),
            "mixed": Dict({"gear": Discrete(2), "force": Box(-1, 1, (1,))}),
        }[actions]
        self.steps, self.last = 0, None

    def obs(self):
        k = self.steps % 2
        return {"velocity": (0.5, -0.25 * k), "gear": k - 1,
                "more": ([k, 2], [1, k], {"image": [[self.steps % 10, 2], [3, 4]]})}

    def reset(self, seed=None, options=None):
        self.steps = 0
        return self.obs(), {}

    def step(self, action):
        self.steps += 1
        if self.kind != "discrete" and repr(action) != self.last:
            self.last = repr(action)
            print(self.last)
        return self.obs(), 0.5, False, self.steps >= self.length, {}


def make_env(**kwargs):
    return Parts(**kwargs)
