"""An environment that is faulty in one of many ways, by a keyword, with Python's standard library."""
import os
import signal
import sys
import time

from spaces import Box, Discrete


made = []


class Torn(list):
    def __iter__(self):
        yield 1.0
        os.kill(os.getpid(), signal.SIGKILL)


class Faulty:
    """Environment `which` of the process has the fault in step `at` of an episode, or in a reset.
    If `once` names a file, that is so only as long as the file is missing."""

    def __init__(self, fault="", which=2, at=3, once="", render_mode=None):
        self.fault = fault if len(made) == which else ""
        self.at, self.once, self.steps, self.resets, self.render_mode = at, once, 0, 0, render_mode
        made.append(self)
        self.observation_space, self.action_space = Box(-1000, 1000, (2,)), Discrete(2)
        if self.fault == "make":
            raise ValueError("cannot be made")
        if self.fault == "made":
            del self.action_space
        if self.fault == "other":
            self.observation_space = Box(-1000, 1000, (3,))
        if self.fault == "graph":
            self.action_space = object()

    def strikes(self, fault):
        if self.fault != fault:
            return False
        if self.once:
            if os.path.exists(self.once):
                return False
            open(self.once, "w").close()
        return True

    def reset(self, seed=None, options=None):
        self.steps = 0
        self.resets += 1
        if self.resets > 1 or self.at < 0:
            if self.strikes("hang in reset"):
                time.sleep(10000)
            if self.strikes("raise in reset"):
                raise KeyError("nothing to reset")
            if self.strikes("spaces"):
                self.action_space = Discrete(3)
            if self.strikes("only obs"):
                return [0.0, 0.0]
            if self.strikes("nan in reset"):
                return [0.0, float("nan")], {}
            if self.strikes("shape in reset"):
                return [0.0], {}
        return [0.0, float(self.resets)], {}

    def step(self, action):
        self.steps += 1
        obs, reward, terminated = [float(self.steps), float(self.resets)], 1.0, False
        if self.steps == self.at and self.fault and self.strikes(self.fault):
            return self.go_wrong(obs)
        return obs, reward, terminated, False, {}

    def go_wrong(self, obs):
        f = self.fault
        if f == "raise":
            raise ValueError("boom \x1b[2J")
        if f == "sys.exit":
            sys.exit(3)
        if f == "os._exit":
            print("goodbye")
            os._exit(3)
        if f == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if f == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if f == "hang":
            print("it hangs")
            time.sleep(10000)
        if f == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if f == "fork":  # a child keeps the pipes open, in a session of its own
            os.dup(4)
            if os.fork() == 0:
                os.setsid()
                time.sleep(3)
                os._exit(0)
            os._exit(4)
        if f == "fork on":
            os.fork()  # the child goes on with this program
        if f == "close":
            os.close(4)
        return {
            "nan": ([float("nan"), 0.0], 1.0, False, False, {}),
            "inf": ([0.0, -float("inf")], 1.0, False, False, {}),
            "big": ([0.0, 1e300], 1.0, False, False, {}),
            "shape": ([1.0, 2.0, 3.0], 1.0, False, False, {}),
            "text": (["a", "b"], 1.0, False, False, {}),
            "none": (None, 1.0, False, False, {}),
            "torn": (Torn([1.0, 2.0]), 1.0, False, False, {}),
            "reward none": (obs, None, False, False, {}),
            "reward text": (obs, "1", False, False, {}),
            "reward nan": (obs, float("nan"), False, False, {}),
            "four": (obs, 1.0, False, {}),
            "six": (obs, 1.0, False, False, {}, 0),
            "one": obs[0],
            "terminated": (obs, 1.0, "no", False, {}),
            "truncated": (obs, 1.0, False, None, {}),
        }.get(f, (obs, 1.0, False, False, {}))

    def render(self):
        return "a picture"

    def close(self):
        if self.fault == "close hangs":
            time.sleep(10000)
        if self.fault == "closed":
            print("closed")


def make_env(**kwargs):
    return Faulty(**kwargs)


def chatty():
    """Prints all the time, also lines that look like messages."""
    env = Faulty()
    step = env.step

    def chat(action):
        os.write(1, b"\x00\x00\x00\x00\x08\x00\x00\x00 no message\n")
        print("a word", file=sys.stderr)
        return step(action)
    env.step = chat
    return env


not_callable = 3
