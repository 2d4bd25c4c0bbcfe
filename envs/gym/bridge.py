"""Steps Gymnasium environments for ditask's package envs/gym, in batches.

Requests arrive on file descriptor 3 and are answered on 4. Observations, rewards,
flags and actions are in memory that both processes share. The text below runs, and
says what is wrong, in Python 2.7 too, but everything else needs MIN_VERSION.
"""
import base64
import json
import os
import struct
import sys
from itertools import repeat

PROTOCOL = 5
MIN_VERSION = (3, 8)
REQUESTS, ANSWERS = 3, 4
HERE = "ditask-bridge"  # begins the name under which this text is compiled

HELLO, MAP, RESET, STEP, RENDER = 1, 2, 3, 4, 5
OK, FAULT = 0, 1

NEXT_STEP, SAME_STEP, DISABLED = 0, 1, 2
TERMINATED, TRUNCATED, WAS_RESET = 1, 2, 4

# The int32 at the beginning of the memory: those of the first line are written here, the others by the reader.
BUSY, OP, ANSWERED, TOLD, ASLEEP = 0, 1, 2, 3, 4
SEQ, CPU, SPINS, WAITING = 16, 17, 18, 19

CPUS = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None  # the processors of this process

# What an environment is in the middle of, beside its number.
IN_STEP, IN_RESET, IN_RENDER, IN_MAKE = 0, 1, 2, 3
OPS = ("step", "reset", "render", "make")

MAX_TEXT = 4000  # of a traceback or a message
UNPACKED = 32    # values of a plain observation that are packed one by one
CODED = 1024     # values of a plain observation that are packed in one call
ROWS = 16        # of a part with several dimensions that are packed in one call
HEAD = "=i4xd"   # begins a row: the number of the step, and the reward

HEADER = struct.Struct("<B3xI")
STEP_REQUEST = HEADER.pack(STEP, 0)
STEP_ANSWER = HEADER.pack(OK, 0)
KINDS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


forked = []  # not empty in a child that an environment has forked


class Fault(Exception):
    """What an environment did wrong: a code for the reader, and a text."""

    def __init__(self, code, text):
        Exception.__init__(self, text)
        self.code, self.text = code, text


class Unheard(Exception):
    """An answer could not be written."""


def setaffinity(cpus):
    """Has this thread run on the given processors. The reader keeps the thread on one between steps, at times."""
    if CPUS is not None:
        try:
            os.sched_setaffinity(0, cpus)
        except OSError:
            pass  # they are not there any more


# Messages.

def read(n):
    """Returns n bytes of the requests, or None at their end."""
    data = os.read(REQUESTS, n)
    while len(data) < n:
        more = os.read(REQUESTS, n - len(data))
        if not more:
            return None
        data += more
    return data


def tell(data):
    """Writes to the answers, and returns how many bytes there was room for."""
    try:
        return os.write(ANSWERS, data)
    except OSError as e:
        raise Unheard(str(e))


def answer(status, payload=b""):
    data = HEADER.pack(status, len(payload)) + payload
    while data:
        data = data[tell(data):]


def answer_json(status, value):
    answer(status, json.dumps(value).encode("utf-8"))


def cut(text, head=False):
    """Returns a text of at most MAX_TEXT characters: its end, or its head."""
    text = str(text)
    if len(text) <= MAX_TEXT:
        return text
    return text[:MAX_TEXT] + "..." if head else "..." + text[-MAX_TEXT:]


def describe_exception(e):
    """Returns type, message and traceback of e, without the frames of this file."""
    import traceback
    tb = e.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(HERE):
        tb = tb.tb_next
    try:
        message = str(e)
    except Exception:
        message = "(its text cannot be made)"
    try:
        if tb is not None or isinstance(e, SyntaxError) or e.__cause__ is not None or e.__context__ is not None:
            text = "".join(traceback.format_exception(type(e), e, tb))
        else:
            text = ""
    except Exception:
        text = ""
    return {"type": type(e).__name__, "message": cut(message, True), "traceback": cut(text)}


# Spaces. They are recognised by the name of their class, so that they can be those
# of gymnasium or somebody's own.

def kind_of(space):
    if isinstance(space, dict):
        return "Dict"
    if isinstance(space, (tuple, list)):
        return "Tuple"
    for c in type(space).__mro__:
        if c.__name__ in KINDS:
            return c.__name__
    raise Fault("space", "is a %s, which is none of %s" % (type(space).__name__, ", ".join(KINDS)))


def need(space, name):
    try:
        return getattr(space, name)
    except AttributeError:
        raise Fault("space", "is a %s without the attribute %s" % (type(space).__name__, name))


def items_of(space):
    """Returns the names and spaces in a Dict or Tuple, in its own order."""
    if kind_of(space) == "Dict":
        inner = space if isinstance(space, dict) else need(space, "spaces")
        return [(key, inner[key]) for key in inner]
    inner = space if isinstance(space, (tuple, list)) else need(space, "spaces")
    return list(enumerate(inner))


def plain(value):
    """Returns arrays, numbers and sequences as Python's own."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (bytes, bytearray)):
        return list(value)
    return value


def is_sequence(value):
    return isinstance(value, (list, tuple))


def flat_list(value):
    """Returns the numbers in a nested sequence, in row-major order."""
    value = plain(value)
    if not is_sequence(value):
        return [value]
    out = []
    for v in value:
        out.extend(flat_list(v))
    return out


def shape_of(value):
    value, shape = plain(value), []
    while is_sequence(value):
        shape.append(len(value))
        value = plain(value[0]) if value else None
    return tuple(shape)


def product(shape):
    n = 1
    for k in shape:
        n *= k
    return n


def as_shape(value):
    value = plain(value)
    if not is_sequence(value):
        value = (value,)
    return tuple(int(k) for k in value)


def dtype_name(space, default):
    dtype = getattr(space, "dtype", None)
    if dtype is None:
        return default
    if isinstance(dtype, str):
        return dtype
    return getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)


def bounds(value, n):
    """Returns float32 numbers as bytes: n of them, or one if all are equal."""
    from array import array
    values = [float(v) for v in flat_list(value)]
    if len(values) not in (1, n):
        raise Fault("space", "is a Box with %d bounds for %d values" % (len(values), n))
    if all(v == values[0] for v in values):
        values = values[:1]
    return base64.b64encode(array("f", values).tobytes()).decode("ascii")


class Space(object):
    """A space as this file uses it: its description, and how its values are read and written."""

    def __init__(self, space, name=""):
        self.name, self.kind, self.items = name, kind_of(space), []
        self.shape, self.n, self.start, self.nvec, self.starts = (), 0, 0, [], []
        numpy = sys.modules.get("numpy")
        dtype = getattr(space, "dtype", None)
        self.numpy = numpy if numpy is not None and isinstance(dtype, numpy.dtype) else None
        self.np_dtype = dtype
        try:
            getattr(self, "init_" + self.kind)(space)
        except Fault:
            raise
        except Exception as e:
            raise Fault("space", "is a %s that cannot be read: %s: %s" % (self.kind, type(e).__name__, cut(e, True)))

    def init_Box(self, space):
        low, high = need(space, "low"), need(space, "high")
        shape = getattr(space, "shape", None)
        self.shape = as_shape(shape) if shape is not None else shape_of(low) or shape_of(high)
        self.size = product(self.shape)
        self.dtype = dtype_name(space, "float32")
        self.sent = {"shape": list(self.shape), "dtype": self.dtype, "low": bounds(low, self.size), "high": bounds(high, self.size)}

    def init_Discrete(self, space):
        self.n, self.start = int(need(space, "n")), int(getattr(space, "start", 0))
        self.dtype, self.size = "int", self.n
        self.sent = {"n": self.n, "start": self.start}

    def init_MultiDiscrete(self, space):
        nvec = need(space, "nvec")
        self.shape, self.nvec = shape_of(nvec), [int(n) for n in flat_list(nvec)]
        starts = getattr(space, "start", None)
        self.starts = [int(s) for s in flat_list(starts)] if starts is not None else [0]
        if len(self.starts) != len(self.nvec):
            self.starts = self.starts[:1] * len(self.nvec)
        self.dtype, self.size = "int", sum(self.nvec)
        self.sent = {"nvec": self.nvec, "shape": list(self.shape)}

    def init_MultiBinary(self, space):
        self.shape = as_shape(need(space, "n"))
        self.size = self.n = product(self.shape)
        self.dtype = "int8"
        self.sent = {"n": self.n, "shape": list(self.shape)}

    def init_Dict(self, space):
        for key, inner in items_of(space):
            name = str(key) if not self.name else "%s/%s" % (self.name, key)
            try:
                self.items.append((key, Space(inner, name)))
            except Fault as f:
                raise Fault(f.code, f.text if f.text.startswith("part ") else "part %r %s" % (name, f.text))
        self.size = sum(s.size for _, s in self.items)
        self.sent = {"items": [{"key": str(key), "space": s.describe()} for key, s in self.items]}

    init_Tuple = init_Dict

    def describe(self):
        out = {"kind": self.kind}
        out.update(self.sent)
        return out

    # Observations: appended to a list as flat numbers, with everything checked.

    def where(self):
        return "part %r of the observation" % self.name if self.name else "the observation"

    def wrong(self, value):
        shape = shape_of(value)
        said = "shape %s" % (shape,) if shape else "%s" % type(value).__name__
        if len(shape) == 1 and is_sequence(plain(value)):
            said = "%d values" % shape[0]
        return Fault("shape", "%s has %s, its space says shape %s" % (self.where(), said, self.shape))

    def add(self, value, out, one_hot):
        if self.kind in ("Dict", "Tuple"):
            self.add_items(value, out)
        elif self.kind == "Discrete":
            k = self.whole(plain(value), self.start, self.n)
            self.add_hot(k - self.start, self.n, out) if one_hot else out.append(k)
        elif self.kind == "MultiDiscrete":
            values = []
            self.add_nested(value, self.shape, values)
            for v, n, start in zip(values, self.nvec, self.starts):
                k = self.whole(v, start, n) - start
                self.add_hot(k, n, out) if one_hot else out.append(k)
        elif not self.shape:
            v = plain(value)
            out.append(v[0] if is_sequence(v) and len(v) == 1 else v)
        else:
            self.add_nested(value, self.shape, out)

    def add_hot(self, k, n, out):
        row = [0.0] * n
        row[k] = 1.0
        out.extend(row)

    def whole(self, value, start, n):
        if is_sequence(value) and len(value) == 1:
            value = plain(value[0])
        try:
            k = int(value)
        except (TypeError, ValueError, OverflowError):
            raise Fault("shape", "%s is %s, not a whole number" % (self.where(), cut(repr(value)[:80], True)))
        if k != value or not start <= k < start + n:
            raise Fault("range", "%s is %s, which is not in %d..%d" % (self.where(), cut(repr(value)[:80], True), start, start + n - 1))
        return k

    def add_nested(self, value, shape, out):
        v = plain(value)
        if not is_sequence(v) or len(v) != shape[0]:
            raise self.wrong(value)
        if len(shape) == 1:
            out.extend(v)
            return
        for inner in v:
            self.add_nested(inner, shape[1:], out)

    def add_items(self, value, out):
        self.check_items(value)
        for key, s in self.items:
            s.add(value[key], out, True)

    def check_items(self, value):
        """Checks that value has the parts of a Dict or Tuple."""
        if self.kind == "Dict":
            if not hasattr(value, "keys"):
                raise Fault("shape", "%s is a %s, its space is a Dict" % (self.where(), type(value).__name__))
            missing = [str(k) for k, _ in self.items if k not in value]
            if missing or len(value) != len(self.items):
                known = [k for k, _ in self.items]
                extra = [str(k) for k in value if k not in known]
                raise Fault("shape", "%s lacks the keys %s and has %s too many" % (self.where(), missing, extra))
        elif not is_sequence(value) or len(value) != len(self.items):
            raise Fault("shape", "%s is a %s of %s, its space is a Tuple of %d" % (
                self.where(), type(value).__name__, len(value) if hasattr(value, "__len__") else "no length", len(self.items)))

    def uses_numpy(self):
        """Reports whether a part of an observation is an array."""
        return self.numpy is not None and self.kind == "Box" or any(s.uses_numpy() for _, s in self.items)

    def check(self, value):
        """Raises the Fault of an observation that could not be written, if it has one."""
        out = []
        self.add(value, out, False)
        for k, v in enumerate(out):
            if isinstance(v, (str, bytes)) or not hasattr(v, "__float__") and not hasattr(v, "__index__"):
                raise Fault("shape", "value %d of the observation is a %s, not a number" % (k, type(v).__name__))
            try:
                struct.pack("=f", v)
            except OverflowError:
                raise Fault("value", "value %d of the observation is %s, which is too large for float32" % (k, v))
            if self.kind == "Box" and self.dtype == "uint8" and not 0 <= v <= 255:
                raise Fault("range", "value %d of the observation is %s, its space has the type uint8" % (k, v))

    # Actions: made of flat numbers.

    def flat(self):
        """Returns how many numbers an action has."""
        if self.kind in ("Dict", "Tuple"):
            return sum(s.flat() for _, s in self.items)
        return 1 if self.kind == "Discrete" else product(self.shape)

    def build(self, values, part=False):
        """Returns the action of the environment that flat numbers stand for. In a part, those of a
        discrete space begin at 0."""
        if self.kind in ("Dict", "Tuple"):
            out, at = [], 0
            for key, s in self.items:
                n = s.flat()
                out.append((key, s.build(values[at:at + n], True)))
                at += n
            return dict(out) if self.kind == "Dict" else tuple(v for _, v in out)
        if self.kind == "Discrete":
            return int(values[0]) + (self.start if part else 0)
        if self.kind == "MultiDiscrete":
            values = [int(v) + s for v, s in zip(values, self.starts)]
        elif self.kind == "MultiBinary" or "int" in self.dtype:
            values = [int(round(v)) for v in values]
        if self.numpy is not None:
            return self.numpy.array(values, dtype=self.np_dtype).reshape(self.shape)
        return nest(values, self.shape)


def nest(values, shape):
    if not shape:
        return values[0]
    if len(shape) == 1:
        return values
    n = product(shape[1:])
    return [nest(values[k * n:(k + 1) * n], shape[1:]) for k in range(shape[0])]


# Writing observations to the memory.

class Packing(object):
    """The text of a function that packs a step of an environment into its row, made for a space: several times
    as quick as a walk through the space. The text is run as part of a loop and of a function."""

    def __init__(self, space, elem):
        self.names, self.lines, self.checks, self.values, self.form = {}, [], [], [], ""
        plain = elem == "f" and not space.uses_numpy()
        if space.kind == "Discrete":
            self.values, self.form = ["obs"], "f"
        elif plain and (space.items or space.kind == "Box" and len(space.shape) == 1) and space.size <= CODED:
            self.walk(space, "obs")
            if self.checks:
                self.lines.append("if %s: raise ValueError" % " or ".join(self.checks))
        else:
            self.copy(space, elem)
        self.written = any("write(obs)" in line for line in self.lines)
        self.pack = struct.Struct(HEAD + self.form).pack_into

    def const(self, value):
        name = "c%d" % len(self.names)
        self.names[name] = value
        return name

    def copy(self, space, elem):
        """An observation that is in memory as the row has it is copied at once, any other is written by
        a function."""
        from array import array
        head, np = struct.calcsize(HEAD), space.numpy
        to = "memory[at + %d:at + %d]" % (head, head + space.size * (1 if elem == "B" else 4))
        if np is not None and not space.items:
            self.names.update(ndarray=np.ndarray, dtype=np.dtype("uint8" if elem == "B" else "float32"), shape=space.shape)
            same = "type(obs) is ndarray and obs.dtype is dtype and obs.shape == shape"
        elif elem == "B":
            same = "type(obs) is bytes"
        elif space.kind == "Box" and len(space.shape) == 1 and not space.uses_numpy():
            self.names["array"] = array
            same = "type(obs) is array and obs.typecode == 'f'"
        else:
            self.lines = ["write(obs)"]
            return
        self.lines = ["if %s:" % same, "    try:", "        %s = obs" % to,
                      "    except ValueError:", "        write(obs)",  # an array with gaps
                      "else:", "    write(obs)"]

    def walk(self, s, at):
        if s.kind == "Dict":
            x = self.variable(at)
            self.checks.append("len(%s) != %d" % (x, len(s.items)))
            for key, inner in s.items:
                self.walk(inner, "%s[%s]" % (x, repr(key) if type(key) in (str, int) else self.const(key)))
        elif s.kind == "Tuple":
            for x, (_, inner) in zip(self.unpack(len(s.items), at), s.items):
                self.walk(inner, x)
        elif s.kind == "Discrete":
            self.hot(s.start, s.n, at)
        elif len(s.shape) > 1 and s.kind != "MultiDiscrete" and s.size // s.shape[-1] <= ROWS:
            self.walk_rows(s.shape, at)
        elif len(s.shape) > 1:
            def flat(value):
                out = []
                s.add(value, out, True)
                return out
            self.values.append("*%s(%s)" % (self.const(flat), at))
            self.form += "%df" % s.size
        elif s.kind == "MultiDiscrete":
            for x, start, n in zip(self.unpack(len(s.nvec), at), s.starts, s.nvec):
                self.hot(start, n, x)
        elif s.shape:
            self.walk_rows(s.shape, at)
        else:
            self.values.append(at)
            self.form += "f"

    def walk_rows(self, shape, at):
        if len(shape) > 1:
            for x in self.unpack(shape[0], at):
                self.walk_rows(shape[1:], x)
            return
        self.form += "%df" % shape[0]
        if shape[0] <= UNPACKED:
            self.values.extend(self.unpack(shape[0], at))
        else:
            x = self.variable(at)
            self.values.append("*" + x)
            self.checks.append("len(%s) != %d" % (x, shape[0]))

    def hot(self, start, n, at):
        """A number becomes a row of zeros with a single 1, which is looked up as bytes."""
        self.values.append("%s[%s]" % (self.const(hot_rows(start, n)), at))
        self.form += "%ds" % (4 * n)

    def variable(self, value):
        x = "x%d" % len(self.lines)
        self.lines.append("%s = %s" % (x, value))
        return x

    def unpack(self, n, value):
        """Returns variables for the n values in a sequence. One of another length raises ValueError."""
        names = ["v%d_%d" % (len(self.lines), k) for k in range(n)]
        self.lines.append("%s, = %s" % (", ".join(names), value) if names else "() = %s" % value)
        return names

    def function(self, text, names):
        """Runs a text that defines a function f, with the packing in the place of its line PACK."""
        indent = text[:text.index("PACK")].split("\n")[-1]
        lines = self.lines + ["pack(%s)" % ", ".join(["memory", "at", "seq", "reward"] + self.values)]
        names = dict(self.names, pack=self.pack, **names)
        exec(compile(text.replace(indent + "PACK", "\n".join(indent + line for line in lines)), HERE + "-space", "exec"), names)
        return names["f"]

    def rows(self, memory, ats, writes):
        """Returns a function for each row, which is given the number of the step, the reward and
        the observation."""
        text = "def f(at, write):\n    def row(seq, reward, obs):\n        PACK\n    return row\n"
        f = self.function(text, {"memory": memory})
        return [f(at, write) for at, write in zip(ats, writes)]

    def server(self, memory):
        """Returns the function that answers requests of steps. The number of the step
        in each row shows how far it came if the process ends in it."""
        text = SERVE if self.written else SERVE.replace(", write in", " in").replace(", writes)", ")")
        numpy = sys.modules.get("numpy")
        if numpy is not None:  # its False is one object too
            text = text.replace("terminated is not False", "terminated is not False and terminated is not FALSE")
            text = text.replace("or truncated is not False", "or truncated is not False and truncated is not FALSE")
        names = {name: globals()[name] for name in (
            "ANSWERED", "TOLD", "ASLEEP", "SEQ", "CPU", "SPINS", "WAITING",
            "CPUS", "REQUESTS", "STEP_REQUEST", "STEP_ANSWER", "setaffinity", "tell", "forked", "repeat")}
        return self.function(text, dict(names, memory=memory, FALSE=getattr(numpy, "False_", None), read=os.read, exit=os._exit))


# The function returns a message that is not the request of a step, or b"" at the end of the requests. CPU is 0 where
# this process stays on the processors that it has, -1 where it takes all of them back, and otherwise 1 more than the number of
# that on which it waits, after a step on any: see turns.go. SPINS is how often it looks for the next step in the memory
# before it waits for a message: see spin.go.
SERVE = """
def f(self):
    steps, ats, writes, actions, ended, words = self.steps, self.ats, self.writes, self.read_actions, self.ended, self.words
    words[ASLEEP] = 0
    while True:
        cpu = words[CPU]
        if cpu:
            setaffinity(CPUS)
        seq = self.seq = words[SEQ]
        spins = words[SPINS]
        at = result = None
        try:
            for step, action, at, write in zip(steps, actions(), ats, writes):
                result = step(action)
                obs, reward, terminated, truncated, info = result
                PACK
                if terminated is not False or truncated is not False:
                    ended(at, obs, reward, terminated, truncated, info)
        except BaseException as e:
            raise self.explain(e, at, result)
        if forked:
            exit(70)  # a child that an environment has forked and let go on
        told = words[TOLD] = words[WAITING] == seq
        words[ANSWERED] = seq
        if told:
            tell(STEP_ANSWER)
        if cpu > 0:
            setaffinity((cpu - 1,))
        for _ in repeat(None, spins):
            if words[SEQ] != seq:
                break
        else:
            words[ASLEEP] = 1
            message = read(REQUESTS, 8)
            if message != STEP_REQUEST:
                return message
            words[ASLEEP] = 0
"""


def hot_rows(start, n):
    """Returns the rows of zeros with a single 1, as bytes, by the number that each stands for."""
    one = struct.pack("=f", 1)
    return {start + k: bytes(4 * k) + one + bytes(4 * (n - k - 1)) for k in range(n)}


def writer(space, elem, memory, at):
    """Returns a function that writes an observation."""
    from array import array
    if space.uses_numpy() and elem == "f":
        return parts_writer(space, memory, at)
    n = space.size if space.items else space.flat()
    view = memoryview(memory)[at:at + n * (1 if elem == "B" else 4)]
    if elem == "B":
        return numpy_writer(space, elem, view) if space.numpy is not None else bytes_writer(space, view)
    floats = view.cast("f")

    def write(obs):
        if type(obs) is not array or obs.typecode != "f" or len(space.shape) != 1:
            values = []
            space.add(obs, values, False)
            obs = array("f", values)
        floats[:] = obs
    return write


def parts_writer(space, memory, at):
    """Returns a function that writes each part of an observation by itself."""
    from array import array
    if space.kind in ("Dict", "Tuple"):
        parts = []
        for key, s in space.items:
            parts.append((key, parts_writer(s, memory, at)))
            at += 4 * s.size

        def write_parts(obs):
            space.check_items(obs)
            for key, write in parts:
                write(obs[key])
        return write_parts
    view = memoryview(memory)[at:at + 4 * space.size]
    if space.kind == "Box" and space.numpy is not None:
        return numpy_writer(space, "f", view)
    floats = view.cast("f")

    def write_flat(obs):
        values = []
        space.add(obs, values, True)
        floats[:] = array("f", values)
    return write_flat


def numpy_writer(space, elem, view):
    np, shape = space.numpy, space.shape
    dtype = np.dtype("uint8" if elem == "B" else "float32")
    row = np.frombuffer(view, dtype=dtype).reshape(shape)

    def write(obs):
        if type(obs) is not np.ndarray:
            obs = np.asarray(obs)
        if obs.shape != shape:
            raise space.wrong(obs)
        if elem == "B" and obs.dtype != dtype:
            space.check(obs)
        row[...] = obs
    return write


def bytes_writer(space, view):
    from array import array

    def write(obs):
        if not isinstance(obs, (bytes, bytearray)) and not (type(obs) is array and obs.typecode == "B") or len(space.shape) != 1:
            values = []
            if isinstance(obs, (bytes, bytearray)) and len(obs) == space.size:
                values = obs  # an image as it is in memory
            else:
                space.add(obs, values, False)
            obs = bytes(values)
        view[:] = obs
    return write


# The environments.

def make_function(hello):
    """Returns a function that makes an environment."""
    kwargs = dict(hello["kwargs"] or {})
    if hello["render_mode"]:
        kwargs["render_mode"] = hello["render_mode"]
    if hello["path"]:
        made = file_function(hello["path"], hello["attr"])
        if hello["render_mode"] and not takes(made, "render_mode"):
            del kwargs["render_mode"]  # its environment may draw itself all the same
        return lambda: made(**kwargs)
    import importlib
    try:
        gymnasium = importlib.import_module("gymnasium")
    except ModuleNotFoundError as e:
        if e.name == "gymnasium":
            raise Fault("gymnasium", "the module gymnasium is not installed for %s: %s -m pip install gymnasium" % (
                sys.executable, sys.executable or "python3"))
        raise
    if hello["module"]:
        try:
            importlib.import_module(hello["module"])
        except ModuleNotFoundError as e:
            if e.name is not None and (hello["module"] + ".").startswith(e.name + "."):
                raise Fault("module", "there is no module %s for %s: install its package, or run in the folder that holds it, "
                            "or set PYTHONPATH" % (
                    e.name, sys.executable))
            raise

    def make():
        try:
            return gymnasium.make(hello["id"], **kwargs)
        except Exception as e:
            names = [c.__name__ for c in type(e).__mro__]
            if "UnregisteredEnv" in names or "NameNotFound" in names or "VersionNotFound" in names or "NamespaceNotFound" in names:
                raise Fault("unknown", "gymnasium knows no environment %s: %s" % (hello["id"], cut(e, True)))
            raise
    return make


def takes(function, name):
    """Reports whether a function takes a keyword argument, as far as that can be known."""
    import inspect
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def file_function(path, attr):
    import importlib.util
    path = os.path.abspath(path)
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:
        name = "ditask_environment_" + name
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    made = module
    for part in attr.split("."):
        if not hasattr(made, part):
            known = sorted(k for k, v in vars(module).items()
                           if callable(v) and not k.startswith("_") and getattr(v, "__module__", None) == name)
            raise Fault("attr", "%s has no %s; its functions and classes are: %s" % (path, attr, ", ".join(known[:20]) or "none"))
        made = getattr(made, part)
    if not callable(made):
        raise Fault("attr", "%s of %s is a %s, which cannot be called: name a function or a class" % (attr, path, type(made).__name__))
    return made


def check_interface(env):
    missing = [name for name in ("reset", "step", "observation_space", "action_space") if not hasattr(env, name)]
    if missing:
        raise Fault("interface", "a %s is no environment: it has no %s; "
                    "what is named must return one that follows Gymnasium's interface" % (
            type(env).__name__, ", ".join(missing)))


def frame_rate(env):
    """Returns the pictures a second that an environment says it has, or 0."""
    try:
        fps = getattr(env, "metadata", None) or {}
        return min(max(int(fps.get("render_fps") or 0), 0), 1000)
    except Exception:
        return 0


def read_space(env, which):
    try:
        return Space(getattr(env, which))
    except Fault as f:
        raise Fault(f.code, "%s %s" % (which, f.text))


def number_of(name, value):
    """Returns the value of an info as a float, or NaN for None."""
    if value is None:
        return float("nan")
    said = "key %r of the info of a step that ended an episode is %s, a %s" % (name, cut(repr(value)[:80], True), type(value).__name__)
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__") and not hasattr(value, "__index__") \
            or len(getattr(value, "shape", ())) > 0:
        raise Fault("info", said + ": only numbers and bools can be named")
    try:
        x = float(value)
    except Exception:
        raise Fault("info", said + ", which is not one number")
    if x - x != 0:
        raise Fault("info", said + ": it must be a finite number, or None")
    return x


class Bridge(object):
    """All environments of this process."""

    def __init__(self):
        self.current = [0, IN_MAKE]  # in the memory, as soon as there is some: number and operation

    # hello makes the environments, and returns their spaces.
    def hello(self, hello):
        if hello["protocol"] != PROTOCOL:
            raise Fault("protocol", "protocol %s is spoken here, not %s" % (PROTOCOL, hello["protocol"]))
        self.mode, self.options, self.infos = hello["autoreset"], hello["options"], hello["infos"] or []
        make = make_function(hello)
        self.envs, self.spaces = [], []
        for i in range(hello["num"]):
            self.current[BUSY] = i
            env = make()
            check_interface(env)
            self.envs.append(env)
            self.spaces.append((env.observation_space, env.action_space))
            obs, action = read_space(env, "observation_space"), read_space(env, "action_space")
            said = (obs.describe(), action.describe())
            if i == 0:
                self.obs, self.action, self.said = obs, action, said
            elif said != self.said:
                raise Fault("spaces", "has other spaces than the first environment")
        numpy = sys.modules.get("numpy")
        return {"protocol": PROTOCOL, "python": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable or "",
                "numpy": getattr(numpy, "__version__", ""), "fps": frame_rate(self.envs[0]), "observation": said[0], "action": said[1]}

    # map maps the shared memory.
    def map(self, m):
        import gc
        import mmap
        n, size = len(self.envs), m["size"]
        fd = os.open(m["path"], os.O_RDWR | os.O_CLOEXEC)
        try:
            self.memory = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        whole = memoryview(self.memory)
        self.current = self.words = whole[0:m["flags"]].cast("i")
        self.words[OP] = IN_MAKE
        self.seq = 0
        self.flags = whole[m["flags"]:m["flags"] + n]
        self.info_values = whole[m["infos"]:m["infos"] + 8 * n * len(self.infos)].cast("d")
        width = self.action.flat()
        self.values = whole[m["actions"]:m["actions"] + 4 * n * width].cast(m["action_elem"])
        row = m["row"]
        packing = Packing(self.obs, m["elem"])
        self.ats = [m["obs"] + i * row for i in range(n)]
        finals = [m["final"] + i * row for i in range(n)]
        self.writes, final_writes = [None] * n, [None] * n
        if packing.written:
            head = struct.calcsize(HEAD)
            self.writes = [writer(self.obs, m["elem"], self.memory, at + head) for at in self.ats]
            final_writes = [writer(self.obs, m["elem"], self.memory, at + head) for at in finals]
        self.puts = packing.rows(self.memory, self.ats, self.writes)
        self.finals = packing.rows(self.memory, finals, final_writes)
        self.number = {at: i for i, at in enumerate(self.ats)}
        self.steps = [env.step for env in self.envs]
        self.resetters = [self.resetter(i) for i in range(n)]
        self.read_actions = self.actions_reader(n, width)
        self.server = packing.server(self.memory)
        gc.collect()
        gc.freeze()  # the objects of now stay: the collector need not look at them again

    def resetter(self, i):
        """Returns a function that takes the place of step when environment i is to be reset instead."""
        def reset(_):
            self.steps[i] = self.envs[i].step
            obs = self.reset_obs(i, None)
            self.obs.check(obs)  # here, where it is known to be of a reset
            self.current[OP] = IN_STEP
            self.flags[i] = WAS_RESET
            return obs, 0.0, False, False, None
        return reset

    def actions_reader(self, n, width):
        values, action = self.values, self.action
        if action.kind == "Discrete":
            return values.tolist
        np = action.numpy
        if np is not None and action.kind == "Box":
            view = np.frombuffer(values, dtype="float32").reshape((n,) + action.shape)
            if "int" in action.dtype:
                return lambda: list(np.rint(view).astype(action.np_dtype))
            return lambda: list(view.astype(action.np_dtype))
        build, ats = action.build, [k * width for k in range(n)]

        def read_all():
            flat = values.tolist()
            return [build(flat[at:at + width]) for at in ats]
        return read_all

    def explain(self, e, at, result):
        """Returns the Fault of a step that ended with e, or e, if the environment of a row has raised it."""
        self.current[BUSY] = self.number.get(at, 0)
        if self.current[OP] != IN_STEP or isinstance(e, Fault) or result is None:
            return e
        try:
            self.check_result(result)
        except Fault as f:
            return f
        except Exception:
            pass
        return e

    def check_result(self, result):
        if not is_sequence(result):
            raise Fault("result", "step returned a %s, not obs, reward, terminated, truncated, info" % type(result).__name__)
        if len(result) == 4:
            raise Fault("result", "step returned 4 values, obs, reward, done, info, as old versions of Gym did: "
                        "return obs, reward, terminated, truncated, info")
        if len(result) != 5:
            raise Fault("result", "step returned %d values, not obs, reward, terminated, truncated, info" % len(result))
        obs, reward, terminated, truncated, _ = result
        if isinstance(reward, (str, bytes)) or not hasattr(reward, "__float__") and not hasattr(reward, "__index__"):
            raise Fault("reward", "the reward is %s, a %s, not a number" % (cut(repr(reward)[:80], True), type(reward).__name__))
        try:
            float(reward)
        except Exception:
            raise Fault("reward", "the reward is %s, a %s, not one number" % (cut(repr(reward)[:80], True), type(reward).__name__))
        self.check_flag("terminated", terminated)
        self.check_flag("truncated", truncated)
        self.obs.check(obs)

    def check_flag(self, name, value):
        if type(value) is not bool and type(value).__name__ not in ("bool_", "bool"):
            raise Fault("flag", "%s is %s, a %s, not a bool" % (name, cut(repr(value)[:80], True), type(value).__name__))

    def write(self, puts, i, reward, obs):
        try:
            puts[i](self.seq, reward, obs)
        except Exception as e:
            if not isinstance(e, Fault):
                self.obs.check(obs)
            raise

    def ended(self, at, obs, reward, terminated, truncated, info):
        """Ends a step whose flags are not both False."""
        if type(terminated) is not bool or type(truncated) is not bool:
            self.check_flag("terminated", terminated)
            self.check_flag("truncated", truncated)
        flags = (TERMINATED if terminated else 0) | (TRUNCATED if truncated else 0)
        if not flags:
            return  # numpy's False
        i = self.number[at]
        if self.infos:
            self.write_infos(i, info)
        self.flags[i] = flags
        if self.mode == SAME_STEP:
            self.finals[i](self.seq, reward, obs)  # as it was written a moment ago
            first = self.reset_obs(i, None)
            self.write(self.puts, i, reward, first)
            self.current[OP] = IN_STEP
        elif self.mode == NEXT_STEP:
            self.steps[i] = self.resetters[i]

    def write_infos(self, i, info):
        """Writes the numbers of an info, with NaN for those that are missing."""
        if not hasattr(info, "get"):
            raise Fault("info", "the info is a %s, not a dict" % type(info).__name__)
        at = i * len(self.infos)
        for k, name in enumerate(self.infos):
            self.info_values[at + k] = number_of(name, info.get(name))

    def reset_obs(self, i, seed):
        """Resets environment i and returns the first observation."""
        current, env = self.current, self.envs[i]
        current[BUSY], current[OP] = i, IN_RESET
        result = env.reset(seed=seed, options=self.options)
        if type(result) is not tuple or len(result) != 2 or type(result[1]) is not dict:
            self.check_reset(result)
        spaces = self.spaces[i]
        if env.observation_space is not spaces[0] or env.action_space is not spaces[1]:
            self.check_spaces(i)
        return result[0]

    def check_reset(self, result):
        if not isinstance(result, tuple) or len(result) != 2 or not hasattr(result[1], "keys"):
            said = "%d values" % len(result) if isinstance(result, tuple) else "a %s" % type(result).__name__
            raise Fault("result", "reset returned %s, not obs, info with a dict as info; "
                        "old versions of Gym returned only the observation" % said)

    def check_spaces(self, i):
        env = self.envs[i]
        said = (read_space(env, "observation_space").describe(), read_space(env, "action_space").describe())
        if said != self.said:
            which = "observation_space" if said[0] != self.said[0] else "action_space"
            raise Fault("spaces", "its %s is now another: spaces must stay as they were when the environment was made" % which)
        self.spaces[i] = (env.observation_space, env.action_space)

    # reset resets some environments, and marks others for a reset in place of their next step.
    def reset(self, m):
        index = m["index"] or []
        for i, seed in zip(index, m["seeds"] or [None] * len(index)):
            self.current[BUSY], self.current[OP] = i, IN_RESET
            self.check_spaces(i)
            self.steps[i] = self.envs[i].step
            self.write(self.puts, i, 0.0, self.reset_obs(i, seed))
        for i in m["pending"] or []:
            self.steps[i] = self.resetters[i]
        self.current[OP] = IN_STEP

    # render returns a picture: width, height, and three bytes for each pixel.
    def render(self, m):
        i = m["index"]
        self.current[BUSY], self.current[OP] = i, IN_RENDER
        env = self.envs[i]
        if not hasattr(env, "render"):
            raise Fault("render", "it has no render")
        frame = env.render()
        if isinstance(frame, list) and frame and len(shape_of(frame[-1])) == 3:
            frame = frame[-1]  # rgb_array_list
        shape = shape_of(frame)
        if len(shape) != 3 or shape[2] != 3 or not shape[0] or not shape[1]:
            said = "shape %s" % (shape,) if shape else type(frame).__name__
            raise Fault("render", "render returned %s, not an array of height x width x 3: "
                        "its function must take render_mode, and its render return an array for rgb_array" % said)
        data = frame.astype("uint8").tobytes() if hasattr(frame, "astype") else bytes(flat_list(frame))
        return struct.pack("<II", shape[1], shape[0]) + data

    def serve(self, op, payload):
        setaffinity(CPUS)
        if op == RENDER:
            data = self.render(json.loads(payload.decode("utf-8")))
            self.current[OP] = IN_STEP
            return data
        value = {HELLO: self.hello, MAP: self.map, RESET: self.reset}[op](json.loads(payload.decode("utf-8")))
        return json.dumps(value).encode("utf-8") if value else b""

    def close(self):
        for env in getattr(self, "envs", []):
            try:
                if hasattr(env, "close"):
                    env.close()
            except Exception:
                import traceback
                traceback.print_exc()


def fault_of(e, current):
    """Returns the answer that describes an exception."""
    out = {"index": current[BUSY], "op": OPS[current[OP]], "code": "exception", "text": ""}
    if isinstance(e, Fault):
        out["code"], out["text"] = e.code, cut(e.text, True)
    elif isinstance(e, SystemExit):
        out["code"], out["text"] = "exit", "it called sys.exit(%s)" % cut(repr(e.code)[:80], True)
    else:
        out.update(describe_exception(e))
    return out


def prepare():
    """Keeps the pipes from child processes, and has the process print where it is when it is killed."""
    import faulthandler
    import signal
    for fd in (REQUESTS, ANSWERS):
        os.set_inheritable(fd, False)

    def in_child():
        forked.append(True)
        for fd in (REQUESTS, ANSWERS):
            try:
                os.close(fd)
            except OSError:
                pass
    os.register_at_fork(after_in_child=in_child)
    faulthandler.enable()
    faulthandler.register(signal.SIGTERM, chain=True)
    if sys.platform != "linux":
        watch_parent()


def watch_parent():
    """Ends the process when its parent has ended, where the system cannot."""
    import threading
    import time
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)
    threading.Thread(target=watch, daemon=True).start()


def main():
    if sys.version_info < MIN_VERSION:
        read(HEADER.size)
        answer_json(FAULT, {"index": -1, "op": "make", "code": "python", "text": "%s is Python %d.%d: %d.%d or newer is needed" % (
            (sys.executable,) + tuple(sys.version_info[:2]) + MIN_VERSION)})
        read(1)
        return
    if sys.byteorder != "little":
        raise SystemExit("numbers are shared in little-endian order, which this machine has not")
    prepare()
    bridge, pid = Bridge(), os.getpid()
    header = read(HEADER.size)
    while header:
        try:
            status, data = OK, None
            try:
                if header == STEP_REQUEST:
                    header = bridge.server(bridge)
                    if header and len(header) < HEADER.size:
                        header += read(HEADER.size - len(header)) or b""
                    continue
                op, length = HEADER.unpack(header)
                payload = read(length) if length else b""
                if payload is None:
                    break
                data = bridge.serve(op, payload)
            except Unheard:
                raise
            except BaseException as e:
                status, data = FAULT, json.dumps(fault_of(e, bridge.current)).encode("utf-8")
            if os.getpid() != pid:
                os._exit(70)  # a child that an environment has forked and let go on
            answer(status, data)
        except Unheard as e:
            sys.stderr.write("the answer cannot be sent: %s: an environment has closed file descriptor %d, "
                             "or its reader is gone\n" % (e, ANSWERS))
            break
        header = read(HEADER.size)
    bridge.close()


main()
