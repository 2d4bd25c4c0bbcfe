"""Reads ONNX models and runs them, with Python's standard library only.

    python3 onnx_check.py < REQUEST.json > RESULT.json

The request is a list of {"path": FILE, "inputs": {NAME: {"shape": [...], "data": [...]}}}, and the result a list of
{"meta": {...}, "outputs": {NAME: {"shape": [...], "data": [...]}}}. It knows the operators that policies of ditask
need, and is a third implementation beside the writer and the reader in Go: values are rounded to float32 after
each operator, and sums are computed in double precision.
"""

import array
import itertools
import json
import math
import struct
import sys


def fields(data):
    """Yields the number and the value of each field of a message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        wire = key & 7
        if wire == 0:
            value = varint()
            if value >= 1 << 63:
                value -= 1 << 64
        elif wire == 5:
            value = struct.unpack("<f", data[at : at + 4])[0]
            at += 4
        elif wire == 2:
            size = varint()
            if at + size > len(data):
                raise ValueError("a message is cut off")
            value = data[at : at + size]
            at += size
        else:
            raise ValueError("wire type %d" % wire)
        yield key >> 3, value


def grouped(data):
    out = {}
    for number, value in fields(data):
        out.setdefault(number, []).append(value)
    return out


class Tensor:
    """An array in row-major order; kind is "f" or "q"."""

    def __init__(self, shape, data, kind="f"):
        self.shape, self.kind = list(shape), kind
        self.data = array.array(kind, data)
        if math.prod(self.shape) != len(self.data):
            raise ValueError("shape %s of %d values" % (shape, len(self.data)))


def read_tensor(data):
    m = grouped(data)
    kind = {1: "f", 7: "q"}[m[2][0]]
    values = array.array(kind)
    values.frombytes(m[9][0])
    if sys.byteorder == "big":
        values.byteswap()
    return m[8][0].decode(), Tensor(m.get(1, []), values, kind)


def read_attribute(data):
    m = grouped(data)
    field = {1: 2, 2: 3, 7: 8}[m[20][0]]
    return m[1][0].decode(), m[field] if field == 8 else m[field][0]


def read_info(data):
    m = grouped(data)
    tensor = grouped(grouped(m[2][0])[1][0])
    dims = [grouped(d) for d in grouped(tensor[2][0]).get(1, [])]
    return m[1][0].decode(), {1: "f", 7: "q"}[tensor[1][0]], [d[1][0] if 1 in d else d[2][0].decode() for d in dims]


def strides(shape):
    out, step = [], 1
    for d in reversed(shape):
        out.insert(0, step)
        step *= d
    return out


def places(out, shape):
    """For each element of the shape out, the index of the element of shape that is repeated there."""
    lead = len(out) - len(shape)
    steps = [0] * lead + [0 if d == 1 else s for d, s in zip(shape, strides(shape))]
    return [sum(i * s for i, s in zip(at, steps)) for at in itertools.product(*map(range, out))]


def broadcast(a, b):
    n = max(len(a), len(b))
    a, b = [1] * (n - len(a)) + a, [1] * (n - len(b)) + b
    if any(x != y and 1 not in (x, y) for x, y in zip(a, b)):
        raise ValueError("the shapes %s and %s do not fit" % (a, b))
    return [y if x == 1 else x for x, y in zip(a, b)]


def each(f):
    return lambda attrs, x: Tensor(x.shape, [f(v) for v in x.data])


def pair(f):
    def run(attrs, x, y):
        shape = broadcast(x.shape, y.shape)
        values = [f(x.data[i], y.data[j]) for i, j in zip(places(shape, x.shape), places(shape, y.shape))]
        return Tensor(shape, values, x.kind)

    return run


def rows(x):
    width = x.shape[-1]
    return [x.data[i : i + width] for i in range(0, len(x.data), width)]


def mat_mul(attrs, x, w):
    out = w.shape[1]
    columns = [w.data[j::out] for j in range(out)]
    return Tensor(x.shape[:-1] + [out], [sum(a * b for a, b in zip(r, c)) for r in rows(x) for c in columns])


def gemm(attrs, x, w, b):
    return pair(lambda p, q: p + q)(attrs, mat_mul(attrs, x, w), b)


def layer_norm(attrs, x, weight, bias):
    out = []
    for r in rows(x):
        mean = sum(r) / len(r)
        deviation = math.sqrt(sum((v - mean) ** 2 for v in r) / len(r) + attrs["epsilon"])
        out += [(v - mean) / deviation * w + b for v, w, b in zip(r, weight.data, bias.data)]
    return Tensor(x.shape, out)


def softmax(attrs, x):
    out = []
    for r in rows(x):
        powers = [math.exp(v - max(r)) for v in r]
        out += [p / sum(powers) for p in powers]
    return Tensor(x.shape, out)


def sigmoid(v):
    return 1 / (1 + math.exp(-v)) if v >= 0 else math.exp(v) / (1 + math.exp(v))


def arg_max(attrs, x):
    return Tensor(x.shape[:-1] + [1], [max(range(len(r)), key=r.__getitem__) for r in rows(x)], "q")


def reduce_mean(attrs, x):
    (axis,) = attrs["axes"]
    n, inner = x.shape[axis], math.prod(x.shape[axis + 1 :])
    out = []
    for outer in range(math.prod(x.shape[:axis])):
        for j in range(inner):
            out.append(sum(x.data[(outer * n + k) * inner + j] for k in range(n)) / n)
    return Tensor(x.shape[:axis] + [1] + x.shape[axis + 1 :], out)


def cut(attrs, x, first, last, axis):
    if list(axis.data) != [len(x.shape) - 1]:
        raise ValueError("axes %s" % axis.data)
    a, b = first.data[0], last.data[0]
    return Tensor(x.shape[:-1] + [b - a], [v for r in rows(x) for v in r[a:b]], x.kind)


def concat(attrs, *parts):
    if attrs["axis"] != len(parts[0].shape) - 1:
        raise ValueError("axis %d" % attrs["axis"])
    width = sum(p.shape[-1] for p in parts)
    values = [v for rs in zip(*map(rows, parts)) for r in rs for v in r]
    return Tensor(parts[0].shape[:-1] + [width], values, parts[0].kind)


def reshape(attrs, x, shape):
    return Tensor([d or x.shape[i] for i, d in enumerate(shape.data)], x.data, x.kind)


def cast(attrs, x):
    return Tensor(x.shape, [int(v) for v in x.data], {7: "q"}[attrs["to"]])


def gather(attrs, table, number):
    if attrs["axis"] != 0 or min(number.data) < 0:
        raise ValueError("axis %d, number %d" % (attrs["axis"], min(number.data)))
    width = table.shape[1]
    return Tensor(number.shape + [width], [v for k in number.data for v in table.data[k * width : (k + 1) * width]])


def shape_of(attrs, x):
    part = x.shape[attrs["start"] : attrs["end"]]
    return Tensor([len(part)], part, "q")


def expand(attrs, x, to):
    shape = broadcast(x.shape, list(to.data))
    return Tensor(shape, [x.data[i] for i in places(shape, x.shape)])


def transpose(attrs, x):
    perm, steps = attrs["perm"], strides(x.shape)
    shape = [x.shape[p] for p in perm]
    order = [sum(i * steps[p] for i, p in zip(at, perm)) for at in itertools.product(*map(range, shape))]
    return Tensor(shape, [x.data[i] for i in order])


def conv(attrs, x, w, b):
    (n, depth, height, width), (out, _, kh, kw), (sh, sw) = x.shape, w.shape, attrs["strides"]
    shape = [n, out, (height - kh) // sh + 1, (width - kw) // sw + 1]
    values = []
    for image, channel, line, column in itertools.product(*map(range, shape)):
        total = b.data[channel]
        for c, p, q in itertools.product(range(depth), range(kh), range(kw)):
            at = ((image * depth + c) * height + line * sh + p) * width + column * sw + q
            total += x.data[at] * w.data[((channel * depth + c) * kh + p) * kw + q]
        values.append(total)
    return Tensor(shape, values)


OPERATORS = {
    "Identity": lambda attrs, x: x,
    "Relu": each(lambda v: max(v, 0.0)),
    "Tanh": each(math.tanh),
    "Sigmoid": each(sigmoid),
    "Add": pair(lambda x, y: x + y),
    "Sub": pair(lambda x, y: x - y),
    "Mul": pair(lambda x, y: x * y),
    "Min": pair(min),
    "Max": pair(max),
    "Clip": lambda attrs, x, low, high: Tensor(x.shape, [min(max(v, low.data[0]), high.data[0]) for v in x.data]),
    "Gemm": gemm,
    "MatMul": mat_mul,
    "Conv": conv,
    "LayerNormalization": layer_norm,
    "Softmax": softmax,
    "ReduceMean": reduce_mean,
    "ArgMax": arg_max,
    "Slice": cut,
    "Concat": concat,
    "Reshape": reshape,
    "Cast": cast,
    "Gather": gather,
    "Shape": shape_of,
    "Expand": expand,
    "Transpose": transpose,
}


def run(path, inputs):
    with open(path, "rb") as f:
        model = grouped(f.read())
    opset = grouped(model[8][0])
    if model[1] != [8] or opset.get(2) != [17] or opset.get(1, [b""]) != [b""]:
        raise ValueError("IR version %s, operators %s" % (model[1], opset))
    graph = grouped(model[7][0])
    meta = {}
    for entry in map(grouped, model.get(14, [])):
        meta[entry[1][0].decode()] = entry.get(2, [b""])[0].decode()
    values = dict(map(read_tensor, graph.get(5, [])))
    for name, kind, dims in map(read_info, graph[11]):
        x = inputs[name]
        if dims[0] != "N" or x["shape"][1:] != dims[1:] or kind != "f":
            raise ValueError("input %s of shape %s, declared is %s" % (name, x["shape"], dims))
        values[name] = Tensor(x["shape"], x["data"])
    for node in map(grouped, graph[1]):
        attrs = dict(map(read_attribute, node.get(5, [])))
        (out,) = node[2]
        if out.decode() in values:
            raise ValueError("%s is defined twice" % out.decode())
        operands = [values[name.decode()] for name in node[1]]
        values[out.decode()] = OPERATORS[node[4][0].decode()](attrs, *operands)
    outputs = {}
    for name, kind, dims in map(read_info, graph[12]):
        y = values[name]
        if dims[0] != "N" or y.shape[1:] != dims[1:] or y.kind != kind:
            raise ValueError("output %s of shape %s, declared is %s" % (name, y.shape, dims))
        outputs[name] = {"shape": y.shape, "data": list(y.data)}
    return {"meta": meta, "outputs": outputs}


if __name__ == "__main__":
    json.dump([run(r["path"], r["inputs"]) for r in json.load(sys.stdin)], sys.stdout)
