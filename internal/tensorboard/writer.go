package tensorboard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ditask/ditask/internal/safefile"
)

// The names of event files: TensorBoard looks for the prefix, and reads them in the order of their names.
const (
	prefix = "events.out.tfevents."
	suffix = ".ditask" // files of others are left alone
)

// Config describes an event file. Dir is needed.
type Config struct {
	Dir string // folder of the files; it is made if it is missing
	// Resume keeps the files of earlier starts, of which readers drop Step and all later ones. Without it they are
	// removed.
	Resume bool
	Step   int64 // the first step that this file can have
	// Clock gives the time; nil means time.Now.
	Clock func() time.Time
	// Untimed writes 0 instead of every time, so that the same values give the same bytes.
	Untimed bool
}

// Writer writes one event file. [Create] returns one.
type Writer struct {
	cfg  Config
	file io.WriteCloser
	path string
	buf  []byte
}

// Scalar is a number with its name.
type Scalar struct {
	Tag   string
	Value float64
}

// Create makes a new event file in a folder.
func Create(cfg Config) (*Writer, error) {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Dir == "" || cfg.Step < 0 {
		return nil, fmt.Errorf("tensorboard: folder %q, first step %d: a folder and a step of at least 0 are needed", cfg.Dir, cfg.Step)
	}
	w := &Writer{cfg: cfg}
	if err := w.open(); err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	err := w.write(event(w.now(), 0, fileVersion()))
	if err == nil && cfg.Resume {
		err = w.write(event(w.now(), cfg.Step, sessionStart()))
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// open creates the file, whose name sorts behind those of existing files.
func (w *Writer) open() error {
	if err := safefile.MkdirAll(w.cfg.Dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(w.cfg.Dir)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	seconds := max(w.cfg.Clock().Unix(), 0)
	for _, e := range entries {
		of, ours := started(e.Name())
		if ours && !w.cfg.Resume {
			if err := os.Remove(filepath.Join(w.cfg.Dir, e.Name())); err != nil {
				return err
			}
		} else if of >= seconds {
			seconds = of + 1 // also where the clock was set back
		}
	}
	for ; ; seconds++ {
		name := fmt.Sprintf("%s%010d.%s.%d%s", prefix, seconds, strings.ReplaceAll(host, "/", "-"), os.Getpid(), suffix)
		w.path = filepath.Join(w.cfg.Dir, name)
		f, err := safefile.New(w.path, 0o644)
		if !errors.Is(err, fs.ErrExist) {
			w.file = f
			return err
		}
	}
}

// started returns the time in the name of an event file, or -1; ours reports that this package wrote it.
func started(name string) (seconds int64, ours bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return -1, false
	}
	digits, _, _ := strings.Cut(rest, ".")
	seconds, err := strconv.ParseInt(digits, 10, 40) // a bound, so that seconds+1 is no overflow
	if err != nil {
		return -1, strings.HasSuffix(name, suffix)
	}
	return seconds, strings.HasSuffix(name, suffix)
}

// Path returns the path of the file.
func (w *Writer) Path() string { return w.path }

// Scalars writes numbers of one step. A number that is not finite is written as it is.
func (w *Writer) Scalars(step int64, values []Scalar) error {
	if len(values) == 0 {
		return nil
	}
	var s []byte
	for _, v := range values {
		if err := checkTag(v.Tag); err != nil {
			return err
		}
		s = appendMessage(s, summaryValue, scalar(v))
	}
	return w.write(event(w.now(), step, summary(s)))
}

// Histogram writes how values are distributed, in 30 buckets of equal width. Values that are not finite are left
// out; without any other one nothing is written.
func (w *Writer) Histogram(step int64, tag string, values []float32) error {
	if err := checkTag(tag); err != nil {
		return err
	}
	h, ok := newHistogram(values)
	if !ok {
		return nil
	}
	return w.write(event(w.now(), step, summary(appendMessage(nil, summaryValue, h.value(tag)))))
}

// Start writes the data of a run for the HPARAMS tab: its hyperparameters, and which metrics count.
func (w *Writer) Start(s Session) error {
	values, err := s.values(w.now())
	if err != nil {
		return err
	}
	return w.write(event(w.now(), 0, summary(values)))
}

// End writes how the run ended. A reader takes the first end of a run, so it is not for a run that continues later.
func (w *Writer) End(s Status) error {
	return w.write(event(w.now(), 0, summary(sessionEnd(s, w.now()))))
}

// Close closes the file. A nil Writer has none.
func (w *Writer) Close() error {
	if w == nil || w.file == nil {
		return nil
	}
	f := w.file
	w.file = nil
	return f.Close()
}

// now returns the time in seconds.
func (w *Writer) now() float64 {
	if w.cfg.Untimed {
		return 0
	}
	return float64(w.cfg.Clock().UnixMicro()) / 1e6
}

// write appends one record.
func (w *Writer) write(data []byte) error {
	w.buf = appendRecord(w.buf[:0], data)
	if _, err := w.file.Write(w.buf); err != nil {
		return fmt.Errorf("tensorboard: %w", err)
	}
	return nil
}

// appendRecord appends data as a TFRecord.
func appendRecord(dst, data []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(data)))
	dst = binary.LittleEndian.AppendUint32(dst, checksum(dst[at:]))
	dst = append(dst, data...)
	return binary.LittleEndian.AppendUint32(dst, checksum(data))
}

// checksum returns the masked CRC-32C of TFRecord: a checksum of data that holds checksums is weak, so it is masked.
func checksum(data []byte) uint32 {
	crc := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) // the table is made once
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// checkText reports a text that a message cannot hold.
func checkText(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%q is no UTF-8", s)
	}
	return nil
}

// checkTag reports a name that TensorBoard cannot hold.
func checkTag(tag string) error {
	if tag == "" || !utf8.ValidString(tag) {
		return fmt.Errorf("tensorboard: the name %q of a value is empty or no UTF-8", tag)
	}
	return nil
}
