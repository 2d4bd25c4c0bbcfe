"""Spaces as the bridge reads them, with nothing but Python's standard library."""


class Box:
    def __init__(self, low, high, shape=None, dtype="float32"):
        self.low, self.high, self.shape, self.dtype = low, high, shape, dtype


class Discrete:
    def __init__(self, n, start=0):
        self.n, self.start = n, start
