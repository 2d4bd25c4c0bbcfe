"""Stands in for gymnasium in tests of names: it knows what its registry has."""


class UnregisteredEnv(Exception):
    pass


class NameNotFound(UnregisteredEnv):
    pass


registry = {}


def register(id, make):
    registry[id] = make


def make(id, **kwargs):
    if id not in registry:
        raise NameNotFound("try Fake-v0")
    return registry[id](**kwargs)


class Box:
    def __init__(self, low, high, shape):
        self.low, self.high, self.shape = low, high, shape


class Discrete:
    def __init__(self, n):
        self.n = n


class Fake:
    def __init__(self, value=1.0):
        self.value = value
        self.observation_space, self.action_space = Box(-9, 9, (1,)), Discrete(2)

    def reset(self, seed=None, options=None):
        return [self.value], {}

    def step(self, action):
        return [self.value], self.value, True, False, {}


register("Fake-v0", Fake)
