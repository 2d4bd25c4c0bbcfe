// Package gym steps environments that are written in Python as an [envs.Vector]: any
// environment of Gymnasium, and any file with a class that follows its interface.
//
//	v, err := gym.Open(ctx, "gym:CartPole-v1", gym.Config{Num: 16, Autoreset: envs.SameStep})
//	if err != nil {
//		return err
//	}
//	defer v.Close()
//	obs, err := v.Reset(42)
//	...
//	res, err := v.Step(actions)
//
// # Names
//
// "gym:CartPole-v1" is gymnasium.make("CartPole-v1"). "gym:package:Own-v0" imports the module
// package first, which registers Own-v0. "path/file.py:make_env" calls a function or class of a file
// with [Config.Kwargs], and needs neither gymnasium nor numpy. Python 3.8 or newer is
// enough: this package contains the Python file that runs in the process.
//
// # Spaces
//
// The name of its class identifies a space: Box, Discrete, MultiDiscrete, MultiBinary, Dict,
// Tuple. A lone Discrete, Box, MultiDiscrete or MultiBinary of observations becomes the space of the same name. A Dict
// or a Tuple becomes one [envs.Box], in the order of gymnasium.spaces.flatten_space, with the numbers
// of discrete parts as rows of zeros with a single 1; [Vector.Layout] has the names and places of the parts.
// Actions are Discrete, Box, or MultiDiscrete. A MultiBinary and a Dict or Tuple of discrete spaces
// become a MultiDiscrete; a Dict or Tuple of boxes becomes one Box. The environment receives actions in the form of its space.
//
// # Infos
//
// The info dicts of environments stay in Python, except for the numbers that [Config.Infos] names: those of the last step of an
// episode are in Info.Values of that step. Info.Episode has its return and length.
//
// # Processes
//
// [Config.Processes] processes have an equal share of the environments each. One message asks a
// process for a step of all its environments, and they work at the same time. They end with
// [Vector.Close], and, on Linux at once, when this process ends.
//
// # Processors
//
// With one process, this one and Python never work at the same time. On Linux, after 100 steps, they avoid waking a processor twice in
// each step, in one of two ways. They use the same processor while a step usually takes up to 1 ms: the thread that calls Step may
// run on no other while it waits, and Python on no other while it waits. Or, while a step usually takes up to 100 µs, neither sleeps:
// Python runs on all processors but that of the thread that calls Step, and each side looks at the memory for up to 100 µs, that thread for
// up to 1 ms if Python had gone to sleep. That needs amd64, two processors and a GOMAXPROCS of 2. Where both are possible, both are tried
// every 5000 steps, for 64 steps each, and the faster one is used.
//
// An environment runs on all processors that the process had when it began: in resets, in pictures, and in steps that usually take
// 100 µs or more. In shorter ones it stays where it is, and so would a thread that it starts in such a step. An environment that
// chooses its processors itself, in a step, may lose its choice. Its threads may wait 5 ms for the interpreter while Python looks for
// the next step.
//
// # Concurrency
//
// A Vector is not safe for concurrent use, except for Close, which ends a call that is in progress.
// Each process has one goroutine that waits for it, locked to a thread, and one that reads its
// output. Close waits for all of them.
//
// # Errors
//
// A fault of an environment is an [*envs.Error] with its index. It wraps [envs.ErrShape]
// (observation of another shape), [envs.ErrHung] (no answer in [Config.StepTimeout], as of a process
// that was stopped), [ErrExited] (the process has ended), [ErrResult] (anything else that breaks the
// rules, such as NaN) or a [*PythonError] (an exception, with its traceback). The error names the environment
// that the process was stepping when it ended or hung. After such an error the vector
// is closed, unless [Config.Restart] is set. An action outside of the space is [envs.ErrAction], as in
// every vector, and changes nothing.
//
// # Waits and bounds
//
// A call waits for StepTimeout, Open and a restart for [Config.StartTimeout]; Close for 3 s until
// the environments are closed, 2 s after SIGTERM and then for SIGKILL. A message of a process has
// at most 64 MiB, an observation 2^24 values, a traceback 4 KiB, a line of output 4 KiB.
//
// # Bytes
//
// The process inherits one pipe in each direction for messages. The output of environments goes to
// [Config.Stderr], with the name and numbers of the environments before each line. A message is an
// operation (one byte), three zeros, a length (four bytes) and that number of bytes of JSON; the message of a step has
// no JSON, and is not sent to a side that does not sleep. Observations, rewards, flags, actions and named infos are in memory that
// both sides share: a file in /dev/shm, or in the folder for temporary files, that is removed as soon as both have mapped it.
// All numbers are in the machine's byte order. Observations are float32, or bytes for a lone Box of
// uint8; rewards are float64.
package gym
