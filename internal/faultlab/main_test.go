package faultlab_test

import (
	"os"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/deadline"
)

func TestMain(m *testing.M) { os.Exit(deadline.Each(m, 3*time.Minute).Run()) }
