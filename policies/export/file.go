package export

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ditask/ditask/internal/safefile"
)

// WriteFile puts what write writes into a file in the place of path. It is written beside, synced and renamed:
// until then, and after an error, a file that has the name stays as it is, and nothing is left beside it. Its
// folder must exist. A folder or a device in the place of the file is an error.
func WriteFile(path string, write func(w io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return errors.New("it is there and no regular file: give the name of a file")
	}
	dir := filepath.Dir(path)
	f, err := safefile.Create(filepath.Join(dir, "."+filepath.Base(path)+".new"), 0o644)
	if err != nil {
		return err
	}
	buffer := bufio.NewWriter(f)
	if err = write(buffer); err == nil {
		err = errors.Join(buffer.Flush(), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
