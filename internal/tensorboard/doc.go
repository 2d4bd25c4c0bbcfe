// Package tensorboard writes event files, which TensorBoard reads: scalars, histograms, and hyperparameters.
//
//	w, err := tensorboard.Create(tensorboard.Config{Dir: "runs/ppo/tensorboard", Resume: true, Step: 20_001})
//	err = w.Start(tensorboard.Session{HParams: map[string]any{"rate": 3e-4, "env": "CartPole-v1"}, Metrics: []string{"eval/mean_reward"}})
//	err = w.Scalars(20_480, []tensorboard.Scalar{{Tag: "eval/mean_reward", Value: 498.2}})
//	err = w.Histogram(20_480, "weights/dense0.weight", weights)
//	err = w.End(tensorboard.Success)
//	err = w.Close()
//
// A [Writer] writes one file, and is not safe for concurrent use. Each call that writes hands the
// operating system one whole record, so nothing waits in the process. A process that is killed can leave
// a record that is cut at the end of its file; readers leave that one out.
//
// # Several starts of one run
//
// An existing file is never changed: a run that continues writes a new file, whose name sorts behind
// those of the earlier ones. It begins with a session log of status START at [Config.Step], at which a reader
// drops what it has read of this step and later ones. So steps that are made again are not doubled. A
// run that begins again removes the files that this package wrote to the folder, by their names, and no other
// file.
//
// # Bytes
//
// A file is a sequence of TFRecords: the length of the data in 8 bytes, a checksum of the length in 4,
// the data, and a checksum of the data in 4, all little-endian. A checksum is CRC-32C, rotated right by 15
// bits, plus 0xa282ead8. The data is a message tensorflow.Event in protocol buffers' encoding; the first
// one has the version of the format, "brain.Event:2". The messages are those of event.proto and summary.proto of
// TensorFlow, and of plugin_data.proto and api.proto of TensorBoard's hparams plugin.
//
// Scalars are float32 in such a file: of a counter above 16,777,216 it has the first seven digits. progress.csv has all.
//
// # Errors
//
// Errors are those of the file, with its path. A name or a value that TensorBoard cannot hold is an error
// that names it.
package tensorboard
