//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	refs "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/ditask/ditask/k8s/internal/kubetest"
)

// The images, which are in no registry: machines load them from the archive.
const (
	registry      = "e2e.invalid"
	operatorImage = registry + "/operator:1"
	dqnImage      = registry + "/dqn:1"
	steadyImage   = registry + "/steady:1"
	jobSetImage   = registry + "/jobset:1"
	lwsImage      = registry + "/lws:1"
	pauseImage    = registry + "/pause:1"
	archive       = "images.tar"
)

// buildImages writes an archive with all images, each with the content that k8s/Dockerfile gives
// it: static files for user 65532 only.
func buildImages() error {
	module := kubetest.Repository()
	root, controllers := filepath.Dir(module), filepath.Join(module, "internal", "controllers")
	out := filepath.Join(folder, "build")
	build := func(dir, file, pkg string) error {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(out, file), pkg)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stderr, os.Stderr
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		return cmd.Run()
	}
	err := errors.Join(
		build(module, "operator", "./operator"), build(module, "pause", "./e2e/pause"), build(controllers, "jobset",
			"sigs.k8s.io/jobset"), build(controllers, "lws", "sigs.k8s.io/lws/cmd"),
		build(root, "ditask", "./ditask"), build(root, "dqn", "./examples/dqn"), build(root, "steady", "./internal/faultlab/steady"),
	)
	if err != nil {
		return err
	}
	images := map[refs.Tag]v1.Image{}
	// The first of the files is the entry point; files are pairs of a name in the
	// image and one in out.
	add := func(tag string, files ...string) error {
		img, err := newImage(out, files)
		if err != nil {
			return err
		}
		ref, err := refs.NewTag(tag)
		images[ref] = img
		return err
	}
	err = errors.Join(
		add(operatorImage, "operator", "operator"), add(jobSetImage, "manager", "jobset"), add(lwsImage, "manager", "lws"), add(pauseImage,
			"pause", "pause"),
		add(dqnImage, "ditask", "ditask", "program", "dqn"), add(steadyImage, "ditask", "ditask", "program", "steady"),
	)
	if err != nil {
		return err
	}
	return tarball.MultiWriteToFile(filepath.Join(folder, archive), images)
}

func newImage(dir string, files []string) (v1.Image, error) {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777})
	for pair := range slices.Chunk(files, 2) {
		data, readErr := os.ReadFile(filepath.Join(dir, pair[1]))
		err = errors.Join(err, readErr, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: pair[0], Mode: 0o755, Size: int64(len(data))}))
		if err == nil {
			_, err = w.Write(data)
		}
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = runtime.GOOS, runtime.GOARCH
	config.Config.User, config.Config.WorkingDir, config.Config.Entrypoint = "65532:65532", "/tmp", []string{"/" + files[0]}
	return mutate.ConfigFile(img, config)
}
