"""An environment whose observation is on how many processors it may run: in the step, in the reset, and in a thread that the step starts."""
import os
import threading

from spaces import Box, Discrete


def processors():
    return float(len(os.sched_getaffinity(0)))


class Processors:
    metadata = {"render_fps": 1}

    def __init__(self):
        self.observation_space, self.action_space = Box(0, 1e6, (3,)), Discrete(2)
        self.render_mode, self.reset_on = "rgb_array", 0.0

    def reset(self, seed=None, options=None):
        self.reset_on = processors()
        return [0.0, self.reset_on, 0.0], {}

    def step(self, action):
        found = []
        if action == 1:
            thread = threading.Thread(target=lambda: found.append(processors()))
            thread.start()
            thread.join()
        return [processors(), self.reset_on, sum(found)], 1.0, False, False, {}


def make_env():
    return Processors()
