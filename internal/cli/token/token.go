// Package token makes the token of a job without a given token: a random one, or one that
// each task of a Slurm step derives on its own.
//
//	secret := token.Random(16)
//	secret, warning, err := token.OfStep(step)
//
// The tokens of steps are derived from the user's file slurm.key, in the folder ditask of
// the user's configuration. Only the user may read it. Many processes may call OfStep
// concurrently.
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

// Random returns n random bytes in hexadecimal.
func Random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// OfStep returns the token of a step without a given token, the same in each of its
// tasks. It is derived from the user's key for Slurm, which all hosts find in the shared
// home folder, and from the cluster and the step. Without such a key it is derived from
// values that other users may know, and OfStep returns a warning.
func OfStep(step slurm.Step) (token, warning string, err error) {
	cluster := os.Getenv("SLURM_CLUSTER_NAME")
	key, err := slurmKey()
	if errors.Is(err, errExposed) {
		return "", "", err
	}
	if err != nil {
		key = fmt.Appendf(nil, "uid %d", os.Getuid())
		warning = fmt.Sprintf("no key for the job's token (%v): the token is derived from the job's id, which is not secret: set %s to a "+
			"random text before srun", err, control.VarToken)
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "ditask slurm token\x00%s\x00%s", cluster, step.Job()) // to memory
	return hex.EncodeToString(mac.Sum(nil)[:16]), warning, nil
}

// errExposed is wrapped by the error for a key that other users can read.
var errExposed = errors.New("other users can read it")

// slurmKey reads the user's key for Slurm, or makes it. If many tasks make it at once, all
// of them get the first one.
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
	// Creating a link is atomic, also on NFS.
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
		return nil, fmt.Errorf("%s: contains no key: remove it for a new one", path)
	}
	return []byte(key), nil
}
