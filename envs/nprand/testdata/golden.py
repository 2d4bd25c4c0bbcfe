"""Writes golden.json: what numpy's default generator gives for some seeds.

Run with any Python 3 that has numpy: python3 golden.py > golden.json
"""
import json
import numpy as np

seeds = [0, 1, 2, 3, 7, 42, 123, 1000, 2**31 - 1, 2**32 - 1, 2**32, 2**40 + 17, 2**63 + 5, 2**64 - 1]
rows = []
for s in seeds:
    g = np.random.Generator(np.random.PCG64(np.random.SeedSequence(s)))
    uniform = [float(v).hex() for _ in range(2) for v in g.uniform(low=-0.05, high=0.05, size=(4,))]
    b = np.random.PCG64(np.random.SeedSequence(s))
    rows.append({
        "seed": str(s),
        "state": [str(v) for v in np.random.SeedSequence(s).generate_state(4, np.uint64)],
        "raw": [str(v) for v in b.random_raw(8)],
        "uniform": uniform,
    })
print(json.dumps(rows, indent=1))
