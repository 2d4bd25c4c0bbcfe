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

// WriteFile replaces the file at path by the output of write. It writes a temporary file in the same folder, syncs and
// renames it: until then, and after an error, an existing file is unchanged, and no temporary file is left. The
// folder must exist. A folder or a device with the name of the file is an error.
func WriteFile(path string, write func(w io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return errors.New("it exists and is no regular file: give the name of a file")
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
