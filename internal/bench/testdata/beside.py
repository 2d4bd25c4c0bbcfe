"""Prints, as JSON, what stands beside rows of the table of floors: the same work in PyTorch, in one
thread, and the product in numpy. Rows of a package that is not installed are left out."""

import json
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

rows = {}


def best(f):
    """The least processor time of f in seconds, over batches."""
    f()
    n = 1
    while True:
        began = time.process_time()
        for _ in range(n):
            f()
        if time.process_time() - began >= 0.02:
            break
        n *= 2
    least = float("inf")
    for _ in range(40):
        began = time.process_time()
        for _ in range(n):
            f()
        least = min(least, (time.process_time() - began) / n)
    return least


def add(row, package, value, unit):
    rows[row] = f"{rows[row] + ', ' if row in rows else ''}{package} {value:.4g} {unit}"


try:
    import numpy

    a, b = (numpy.random.rand(256, 256).astype("float32") for _ in range(2))
    c = numpy.empty_like(a)
    add("product 256 x 256 x 256", "numpy", 2 * 256**3 / best(lambda: numpy.matmul(a, b, out=c)) / 1e9, "Gflop/s")
except ImportError:
    pass

try:
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(1)

    def mlp(widths, activation):
        layers = []
        for i, o in zip(widths, widths[1:]):
            layers += [nn.Linear(i, o), activation()]
        return nn.Sequential(*layers[:-1])

    def update(optimizer, loss, clip=None):
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], clip)
        optimizer.step()

    def dqn(widths):
        q, target = mlp(widths, nn.ReLU), mlp(widths, nn.ReLU)
        adam = torch.optim.Adam(q.parameters(), lr=1e-3)
        obs, following = torch.rand(64, widths[0]), torch.rand(64, widths[0])
        action, reward, over = torch.randint(widths[-1], (64, 1)), torch.rand(64), torch.zeros(64)

        def f():
            with torch.no_grad():
                wanted = reward + 0.99 * (1 - over) * target(following).max(1).values
            update(adam, F.smooth_l1_loss(q(obs).gather(1, action).squeeze(1), wanted), 10)

        return f

    for widths in [4, 64, 64, 2], [4, 128, 128, 64, 2], [24, 256, 256, 4]:
        add(f"DQN update {'-'.join(map(str, widths))}, batch 64", "PyTorch", 1e6 * best(dqn(widths)), "µs")

    net = mlp([4, 64, 64, 2], nn.ReLU)
    for n in 1, 8:
        obs = torch.rand(n, 4)

        def act():
            with torch.no_grad():
                return net(obs).argmax(1)

        add(f"DQN act 4-64-64-2, batch {n}", "PyTorch", 1e6 * best(act), "µs")

    def ppo(n):
        actor, critic = mlp([4, 64, 64, 2], nn.Tanh), mlp([4, 64, 64, 1], nn.Tanh)
        adam = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=2.5e-4, eps=1e-5)
        obs, action, old = torch.rand(n, 4), torch.randint(2, (n,)), torch.full((n,), -0.7)
        values, returns, raw = torch.rand(n), torch.rand(n), torch.rand(n)

        def f():
            d, value = torch.distributions.Categorical(logits=actor(obs)), critic(obs).squeeze(1)
            ratio, advantage = (d.log_prob(action) - old).exp(), (raw - raw.mean()) / (raw.std() + 1e-8)
            surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            near = values + (value - values).clamp(-0.2, 0.2)
            error = 0.5 * torch.max((value - returns) ** 2, (near - returns) ** 2).mean()
            update(adam, 0.5 * error - surrogate - 0.01 * d.entropy().mean(), 0.5)

        return f

    for n in 64, 256:
        add(f"PPO minibatch {n}", "PyTorch", 1e6 * best(ppo(n)), "µs")

    def sac():
        actor = mlp([3, 256, 256, 2], nn.ReLU)
        critics, targets = ([mlp([4, 256, 256, 1], nn.ReLU) for _ in range(2)] for _ in range(2))
        weights = [p for c in critics for p in c.parameters()]
        log_alpha = torch.zeros(1, requires_grad=True)
        adams = [torch.optim.Adam(p, lr=1e-3) for p in (weights, actor.parameters(), [log_alpha])]
        obs, action, following = torch.rand(256, 3), torch.rand(256, 1), torch.rand(256, 3)
        reward, over = torch.rand(256, 1), torch.zeros(256, 1)

        def sample(o):
            mean, spread = actor(o).chunk(2, 1)
            d = torch.distributions.Normal(mean, (-5 + 3.5 * (spread.tanh() + 1)).exp())
            x = d.rsample()
            y = x.tanh()
            return y, (d.log_prob(x) - (1 - y**2 + 1e-6).log()).sum(1, keepdim=True)

        def least(nets, o, a):
            x = torch.cat([o, a], 1)
            return torch.min(nets[0](x), nets[1](x))

        def f():
            alpha = log_alpha.exp().item()
            with torch.no_grad():
                a, log_prob = sample(following)
                wanted = reward + 0.99 * (1 - over) * (least(targets, following, a) - alpha * log_prob)
            x = torch.cat([obs, action], 1)
            update(adams[0], sum(F.mse_loss(c(x), wanted) for c in critics))
            a, log_prob = sample(obs)
            update(adams[1], (alpha * log_prob - least(critics, obs, a)).mean())
            update(adams[2], (-log_alpha.exp() * (log_prob.detach() - 1)).mean())
            with torch.no_grad():
                for c, t in zip(critics, targets):
                    for p, q in zip(c.parameters(), t.parameters()):
                        q.lerp_(p, 0.005)

        return f

    add("SAC update 3-256-256, batch 256", "PyTorch", 1e3 * best(sac()), "ms")
except ImportError:
    pass

print(json.dumps(rows))
