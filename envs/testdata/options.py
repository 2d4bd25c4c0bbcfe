"""Writes options.json: what the trajectories recorded from Gymnasium do not reach.

An independent statement of the published rules, in Python, with numpy's own
random numbers: goals that a pumping policy reaches, walls, forces that are
clipped, options, other maps, deliveries, and naturals.
Run with any Python 3 that has numpy: python3 options.py | gzip -9n > options.json.gz
"""
import json
import math
import sys
import numpy as np

f32 = np.float32


def rng_of(seed):
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))


def pick(probabilities, rng):
    x, total = rng.random(), 0.0
    for i, p in enumerate(probabilities):
        total += p
        if total > x:
            return i
    return 0


class Cart:
    def __init__(self, sutton_barto_reward=0):
        self.sb = sutton_barto_reward

    def reset(self, rng):
        self.s = list(rng.uniform(-0.05, 0.05, 4))
        return [f32(v) for v in self.s]

    def step(self, a, rng):
        x, v, t, w = self.s
        push = 10.0 if a else -10.0
        temp = (push + 0.05 * (w * w) * math.sin(t)) / 1.1
        angular = (9.8 * math.sin(t) - math.cos(t) * temp) / (0.5 * (4 / 3 - 0.1 * (math.cos(t) * math.cos(t)) / 1.1))
        linear = temp - 0.05 * angular * math.cos(t) / 1.1
        self.s = [x + 0.02 * v, v + 0.02 * linear, t + 0.02 * w, w + 0.02 * angular]
        end = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 24 * math.pi / 360
        return [f32(v) for v in self.s], (-1.0 if end else 0.0) if self.sb else 1.0, end

    def policy(self, k, rng):
        return int(self.s[2] + 0.3 * self.s[3] > 0.02)


class Acrobot:
    def __init__(self, nips=0, torque_noise_max=0):
        self.nips, self.noise = nips, torque_noise_max

    def obs(self):
        a, b, v, w = self.s
        return [f32(x) for x in (math.cos(a), math.sin(a), math.cos(b), math.sin(b), v, w)]

    def reset(self, rng):
        self.s = np.array([float(f32(v)) for v in rng.uniform(-0.1, 0.1, 4)])
        return self.obs()

    def slope(self, s, torque):
        a, b, v, w = s
        g = 9.8
        d1 = 0.25 + (1.25 + math.cos(b)) + 2.0
        d2 = 0.25 + 0.5 * math.cos(b) + 1.0
        p2 = 0.5 * g * math.cos(a + b - math.pi / 2)
        p1 = -0.5 * w * w * math.sin(b) - w * v * math.sin(b) + 1.5 * g * math.cos(a - math.pi / 2) + p2
        pull = torque + d2 / d1 * p1 - p2 - (0 if self.nips else 0.5 * v * v * math.sin(b))
        acc2 = pull / (1.25 - d2 * d2 / d1)
        return np.array([v, w, -(d2 * acc2 + p1) / d1, acc2])

    def step(self, a, rng):
        torque = float(a - 1)
        if self.noise > 0:
            torque += rng.uniform(-self.noise, self.noise)
        s, h = self.s, 0.2
        k1 = self.slope(s, torque)
        k2 = self.slope(s + h / 2 * k1, torque)
        k3 = self.slope(s + h / 2 * k2, torque)
        k4 = self.slope(s + h * k3, torque)
        s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        for i in (0, 1):
            while s[i] > math.pi:
                s[i] -= 2 * math.pi
            while s[i] < -math.pi:
                s[i] += 2 * math.pi
        s[2], s[3] = np.clip(s[2], -4 * math.pi, 4 * math.pi), np.clip(s[3], -9 * math.pi, 9 * math.pi)
        self.s = s
        end = bool(-math.cos(s[0]) - math.cos(s[0] + s[1]) > 1)
        return self.obs(), 0.0 if end else -1.0, end

    def policy(self, k, rng):
        return 2 if self.s[2] < 0 else 0


class Car:
    def __init__(self, goal_velocity=0):
        self.least = goal_velocity

    def reset(self, rng):
        self.p, self.v = rng.uniform(-0.6, -0.4), 0.0
        return [f32(self.p), f32(0)]

    def go(self, push, goal):
        v = min(max(self.v + push - 0.0025 * math.cos(3 * self.p), -0.07), 0.07)
        p = min(max(self.p + v, -1.2), 0.6)
        if p == -1.2 and v < 0:
            v = 0.0
        self.p, self.v = p, v
        return p >= goal and v >= self.least

    def step(self, a, rng):
        end = self.go((a - 1) * 0.001, 0.5)
        return [f32(self.p), f32(self.v)], -1.0, end

    def policy(self, k, rng):
        return 2 if self.v >= 0 else 0


class CarContinuous(Car):
    def step(self, a, rng):
        end = self.go(min(max(float(f32(a[0])), -1.0), 1.0) * 0.0015, 0.45)
        self.p, self.v = float(f32(self.p)), float(f32(self.v))
        return [self.p, self.v], (100.0 if end else 0.0) - 0.1 * float(f32(a[0])) ** 2, end

    def policy(self, k, rng):
        return [float(f32((1.5 if self.v >= 0 else -1.5) * (0.5 if k % 7 == 0 else 1)))]


class Pendulum:
    def __init__(self, g=10.0):
        self.g = g

    def reset(self, rng):
        self.t, self.w = rng.uniform([-math.pi, -1], [math.pi, 1])
        return self.obs()

    def obs(self):
        return [f32(math.cos(self.t)), f32(math.sin(self.t)), f32(self.w)]

    def step(self, a, rng):
        u = min(max(float(f32(a[0])), -2.0), 2.0)
        lean = (self.t + math.pi) % (2 * math.pi) - math.pi
        cost = lean**2 + 0.1 * self.w**2 + 0.001 * u**2
        self.w = min(max(self.w + (1.5 * self.g * math.sin(self.t) + 3 * u) * 0.05, -8.0), 8.0)
        self.t += self.w * 0.05
        return self.obs(), -cost, False

    def policy(self, k, rng):
        return [3.0 if self.w > 0 else -3.0]


class Cells:
    def walk(self, s, down, right):
        r, c = divmod(s, self.cols)
        return min(max(r + down, 0), self.rows - 1) * self.cols + min(max(c + right, 0), self.cols - 1)

    def policy(self, k, rng):
        return int(rng.integers(4))


class Lake(Cells):
    moves = [(0, -1), (1, 0), (0, 1), (-1, 0)]

    def __init__(self, map, sure=0, success_rate=0, goal=0, hole=0, ice=0):
        self.map, self.sure, self.rate = "".join(map), sure, success_rate or 1 / 3
        self.rows, self.cols = len(map), len(map[0])
        self.rewards = {"G": goal, "H": hole, "F": ice, "S": ice} if goal or hole or ice else {"G": 1, "H": 0, "F": 0, "S": 0}

    def reset(self, rng):
        rng.random()
        self.s = self.map.index("S")
        return [self.s]

    def step(self, a, rng):
        if self.sure:
            rng.random()
            way = a
        else:
            side = (1 - self.rate) / 2
            way = (a + pick([side, self.rate, side], rng) - 1) % 4
        self.s = self.walk(self.s, *self.moves[way])
        letter = self.map[self.s]
        return [self.s], float(self.rewards[letter]), letter in "GH"

    def policy(self, k, rng):
        return int(rng.choice([1, 2, 1, 2, 0, 3]))


class Cliff(Cells):
    moves = [(-1, 0), (0, 1), (1, 0), (0, -1)]
    rows, cols = 4, 12

    def __init__(self, slippery=0):
        self.slippery = slippery

    def reset(self, rng):
        rng.random()
        self.s = 36
        return [36]

    def step(self, a, rng):
        if self.slippery:
            a = (a + pick([1 / 3] * 3, rng) - 1) % 4
        else:
            rng.random()
        s = self.walk(self.s, *self.moves[a])
        reward = -1.0
        if 36 < s < 47:
            s, reward = 36, -100.0
        self.s = s
        return [s], reward, s == 47

    def policy(self, k, rng):
        r, c = divmod(self.s, 12)
        if k % 40 > 25:
            return int(rng.integers(4))
        return 0 if r == 3 else 1 if c < 11 else 2


class Taxi:
    places = [(0, 0), (0, 4), (4, 0), (4, 3)]
    rows = ["R: | : :G", " : | : : ", " : : : : ", " | : | : ", "Y| : |B: "]

    def obs(self):
        return [((self.r * 5 + self.c) * 5 + self.p) * 4 + self.d]

    def reset(self, rng):
        legal = [(r, c, p, d) for r in range(5) for c in range(5) for p in range(5) for d in range(4)]
        self.r, self.c, self.p, self.d = legal[pick([1 / 300 if p < 4 and p != d else 0 for _, _, p, d in legal], rng)]
        return self.obs()

    def step(self, a, rng):
        rng.random()
        here, reward, end = (self.r, self.c), -1.0, False
        if a == 0:
            self.r = min(self.r + 1, 4)
        elif a == 1:
            self.r = max(self.r - 1, 0)
        elif a == 2 and self.c < 4 and self.rows[self.r][2 * self.c + 1] == ":":
            self.c += 1
        elif a == 3 and self.c > 0 and self.rows[self.r][2 * self.c - 1] == ":":
            self.c -= 1
        elif a == 4:
            if self.p < 4 and self.places[self.p] == here:
                self.p = 4
            else:
                reward = -10.0
        elif a == 5:
            if self.p == 4 and here in self.places:
                self.p = self.places.index(here)
                if self.p == self.d:
                    reward, end = 20.0, True
            else:
                reward = -10.0
        return self.obs(), reward, end

    def policy(self, k, rng):
        if rng.random() < 0.3:
            return int(rng.integers(6))
        goal = self.places[self.d if self.p == 4 else self.p]
        if (self.r, self.c) == goal:
            return 5 if self.p == 4 else 4
        if self.r != 2 and self.c != goal[1]:  # the middle row has no walls
            return 0 if self.r < 2 else 1
        if self.c != goal[1]:
            return 2 if self.c < goal[1] else 3
        return 0 if self.r < goal[0] else 1


class Blackjack:
    def __init__(self, rules=0):
        self.rules = rules

    def card(self, rng):
        return min(int(rng.choice(13)) + 1, 10)

    def total(self, h):
        return sum(h) + 10 if 1 in h and sum(h) <= 11 else sum(h)

    def obs(self):
        return [self.total(self.me), self.bank[0], int(self.total(self.me) != sum(self.me))]

    def reset(self, rng):
        self.bank = [self.card(rng), self.card(rng)]
        self.me = [self.card(rng), self.card(rng)]
        rng.choice(["a", "b", "c", "d"])
        if self.bank[0] == 10:
            rng.choice(["x", "y", "z"])
        return self.obs()

    def step(self, a, rng):
        if a:
            self.me.append(self.card(rng))
            bust = self.total(self.me) > 21
            return self.obs(), -1.0 if bust else 0.0, bust
        while self.total(self.bank) < 17:
            self.bank.append(self.card(rng))
        mine, its = [t if t <= 21 else 0 for t in (self.total(self.me), self.total(self.bank))]
        reward = float((mine > its) - (mine < its))
        natural = [sorted(h) == [1, 10] for h in (self.me, self.bank)]
        if natural[0] and self.rules == 0 and not natural[1]:
            reward = 1.0
        if natural[0] and self.rules == 2 and reward == 1:
            reward = 1.5
        return self.obs(), reward, True

    def policy(self, k, rng):
        return int(self.total(self.me) < 4 + k % 19)


def play(name, make, seed, steps, limit, map=None, **options):
    env = make(**options) if map is None else make(map, **options)
    rng, free = rng_of(seed), rng_of(seed + 10**6)
    row = {"env": name, "seed": seed, "options": {k: v for k, v in options.items() if k != "slippery"}, "map": map}
    show = lambda o: [float(f"{float(v):.9g}") for v in o]
    row["reset"] = show(env.reset(rng))
    for key in ("actions", "obs", "rewards", "terminated", "truncated", "resets"):
        row[key] = []
    elapsed = 0
    for k in range(steps):
        a = env.policy(k, free)
        o, r, end = env.step(a, rng)
        elapsed += 1
        row["actions"].append(a)
        row["obs"].append(show(o))
        row["rewards"].append(float(f"{r:.9g}"))
        if end:
            row["terminated"].append(k)
        if limit and elapsed >= limit:
            row["truncated"].append(k)
        if end or limit and elapsed >= limit:
            row["resets"].append([k, show(env.reset(rng))])
            elapsed = 0
    print(name, options, len(row["terminated"]), "ends", len(row["truncated"]), "cuts", sorted(set(row["rewards"]))[-3:], file=sys.stderr)
    return row


big = ["SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"]
small = ["SFFF", "FHFH", "FFFH", "HFFG"]
runs = []
for seed in (7, 2**40 + 3):
    runs += [
        play("CartPole-v1", Cart, seed, 700, 500, sutton_barto_reward=1),
        play("Acrobot-v1", Acrobot, seed, 700, 500),
        play("Acrobot-v1", Acrobot, seed, 300, 500, nips=1),
        play("Acrobot-v1", Acrobot, seed, 300, 500, torque_noise_max=0.5),
        play("MountainCar-v0", Car, seed, 500, 200),
        play("MountainCar-v0", Car, seed, 450, 200, goal_velocity=0.05),
        play("MountainCarContinuous-v0", CarContinuous, seed, 1200, 999),
        play("MountainCarContinuous-v0", CarContinuous, seed, 1100, 999, goal_velocity=0.2),
        play("Pendulum-v1", Pendulum, seed, 500, 200),
        play("Pendulum-v1", Pendulum, seed, 300, 200, g=9.81),
        play("FrozenLake8x8-v1", Lake, seed, 900, 200, map=big),
        play("FrozenLake8x8-v1", Lake, seed, 400, 200, map=big, success_rate=0.8, goal=5.0, hole=-2.0, ice=-0.1),
        play("FrozenLake-v1", Lake, seed, 400, 100, map=small, sure=1),
        play("FrozenLake-v1", Lake, seed, 250, 100, map=["SFF", "FFF"]),
        play("CliffWalking-v1", Cliff, seed, 300, 0),
        play("CliffWalkingSlippery-v1", Cliff, seed, 600, 0, slippery=1),
        play("Taxi-v4", Taxi, seed, 700, 200),
    ] + [play("Blackjack-v1", Blackjack, seed, 900, 0, rules=k) for k in range(3)]

lakes = []
for seed in range(6):
    rng, size, p = rng_of(seed), 4 + seed, 0.6 + 0.05 * seed
    while True:
        rows = rng.choice(["F", "H"], (size, size), p=[p, 1 - p])
        rows[0][0], rows[-1][-1] = "S", "G"
        seen, todo = set(), [(0, 0)]
        while todo:
            r, c = todo.pop()
            if 0 <= r < size and 0 <= c < size and (r, c) not in seen and rows[r][c] != "H":
                seen.add((r, c))
                todo += [(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)]
        if (size - 1, size - 1) in seen:
            break
    lakes.append({"size": size, "frozen": p, "seed": seed, "map": ["".join(r) for r in rows]})
print(json.dumps({"runs": runs, "lakes": lakes}))
