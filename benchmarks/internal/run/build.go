//go:build linux

package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Programs are the binaries of a measurement.
type Programs struct{ dir string }

// Build compiles the named programs into dir: shipper, or one of the harness.
func Build(dir string, names ...string) (Programs, error) {
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		return Programs{}, err
	}
	root, err := moduleDir()
	if err != nil {
		return Programs{}, err
	}
	args := []string{"build", "-trimpath", "-o", bin + "/"}
	for _, name := range names {
		if name == "shipper" {
			args = append(args, "./cmd/shipper")
		} else {
			args = append(args, "./benchmarks/"+name)
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return Programs{}, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return Programs{bin}, nil
}

// Path of a program by its name.
func (p Programs) Path(name string) string { return filepath.Join(p.dir, name) }

func moduleDir() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
