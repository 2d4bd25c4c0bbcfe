// Package token makes the token of a job to which none was given: a random one, or one
// that all tasks of a Slurm step come to by themselves.
//
//	secret := token.Random(16)
//	secret, warning, err := token.OfStep(step)
//
// The key from which the tokens of steps are made is a file of the user, slurm.key in
// the folder ditask of the user's configuration, which only the user may read. OfStep
// may be called by many processes at once.
package token

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ditask/ditask/internal/safefile"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/slurm"
)

// Random is a text of that many random bytes in hexadecimal.
func Random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// OfStep is the token of a step to which none was given, the same in each
// of its tasks: made of the user's key for Slurm, which all hosts find in the
// shared home folder, and of what names the step. Without such a folder it
// is made of what others may know too, and a warning says so.
func OfStep(step slurm.Step) (token, warning string, err error) {
	cluster := os.Getenv("SLURM_CLUSTER_NAME")
	key, err := slurmKey()
	if errors.Is(err, errExposed) {
		return "", "", err
	}
	if err != nil {
		key = fmt.Appendf(nil, "uid %d", os.Getuid())
		warning = fmt.Sprintf("no key for the job's token (%v): it is made of the job's id, which is no secret: set %s to a random text before srun", err, control.VarToken)
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "ditask slurm token\x00%s\x00%s", cluster, step.Job()) // to memory
	return hex.EncodeToString(mac.Sum(nil)[:16]), warning, nil
}

// errExposed is in the error for a key that others can read.
var errExposed = errors.New("others can read it")

// slurmKey reads the user's key for Slurm, or makes it. Of many tasks that make it
// at once all get the one that was first.
func slurmKey() ([]byte, error) {
	config, err := os.UserConfigDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(config, "ditask")
	path := filepath.Join(dir, "slurm.key")
	key, err := readKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := safefile.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, "slurm.key.*") // only the user can read it
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = fmt.Fprintln(f, rand.Text()+rand.Text())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	// A link is made whole or not at all, on NFS too.
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return readKey(path)
}

func readKey(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: %w: chmod 600 it, or remove it for a new one", path, errExposed)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key := strings.TrimSpace(string(b))
	if len(key) < 32 {
		return nil, fmt.Errorf("%s: holds no key: remove it for a new one", path)
	}
	return []byte(key), nil
}
