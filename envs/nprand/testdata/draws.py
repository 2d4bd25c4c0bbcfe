"""Writes draws.json: integers, choices, shuffles and floats of numpy's default
generator, in turn, so that the half words that integers leave are tested too.

Run with any Python 3 that has numpy: python3 draws.py > draws.json
"""
import json
import numpy as np

rows = []
for seed in [0, 1, 42, 100, 2**40 + 17]:
    g = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    steps = []
    for k in range(10):
        for low, high in [(0, 13), (0, 4), (0, 3), (-5, 6), (7, 8), (0, 2**32), (0, 2**32 - 1), (-2**40, 2**40), (0, 3 * 2**30)]:
            steps.append(["integers", low, high, str(int(g.integers(low, high)))])
        steps.append(["random", 0, 0, float(g.random()).hex()])
        steps.append(["choice", 13, 0, str(int(g.choice(13)))])
        steps.append(["weighted", 0, 0, str(int(g.choice(3, p=[0.2, 0.5, 0.3])))])
        a = list(range(1 + k % 9))
        g.shuffle(a)
        steps.append(["shuffle", len(a), 0, " ".join(map(str, a))])
    rows.append({"seed": str(seed), "steps": steps})
print(json.dumps(rows))
