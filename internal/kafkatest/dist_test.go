package kafkatest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorder notes how a test would have ended.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Helper()                       {}
func (r *recorder) Skipf(format string, a ...any) { r.skipped = fmt.Sprintf(format, a...) }
func (r *recorder) Fatal(a ...any)                { r.failed += fmt.Sprint(a...) }

// What is absent skips a test, or fails it if Kafka is required; other errors fail it.
func TestRefuse(t *testing.T) {
	for _, tt := range []struct {
		require string
		err     error
		skip    bool
	}{
		{"", absent("no java"), true},
		{"1", absent("no java"), false},
		{"", errors.New("broken"), false},
	} {
		t.Setenv(envRequire, tt.require)
		r := &recorder{TB: t}
		refuse(r, tt.err)
		if (r.skipped != "") != tt.skip || (r.failed != "") == tt.skip || strings.Contains(r.skipped, "\n") {
			t.Errorf("require %q, error %v: skipped %q, failed %q", tt.require, tt.err, r.skipped, r.failed)
		}
	}
}

func TestAbsentTools(t *testing.T) {
	t.Setenv(envCache, t.TempDir())
	t.Setenv("JAVA_HOME", "")
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	for _, missing := range []string{"java", "mvn"} {
		_, err := findOrMake("4.4.0")
		var a *absentError
		if !errors.As(err, &a) || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v", missing, err)
		}
		// A java that is there but does nothing; it is not run before Maven is found.
		if err := os.WriteFile(filepath.Join(bin, "java"), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// A Maven that fails leaves nothing that looks like a distribution.
	if err := os.WriteFile(filepath.Join(bin, "mvn"), []byte("#!/bin/sh\necho no such artefact\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := findOrMake("4.4.0")
		var a *absentError
		if !errors.As(err, &a) || !strings.Contains(err.Error(), "no such artefact") {
			t.Errorf("with a failing mvn: %v", err)
		}
	}
}
