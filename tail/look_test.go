package tail

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Neighbours are told the same of by name in their open directory as by path, whatever there is under a name, and nothing stays open.
func TestNear(t *testing.T) {
	top := t.TempDir()
	var paths []string
	for _, dir := range []string{"a", "a/b", "c"} {
		must(t, os.MkdirAll(filepath.Join(top, dir), 0o755))
		for i := range nearMin + 3 {
			paths = append(paths, filepath.Join(top, dir, fmt.Sprintf("%d.log", i)))
			must(t, os.WriteFile(paths[len(paths)-1], make([]byte, i), 0o600))
		}
		must(t, os.Symlink("1.log", filepath.Join(top, dir, "link")))
		paths = append(paths, filepath.Join(top, dir, "link"), filepath.Join(top, dir, "nothing"))
	}
	place := near{fd: -1}
	opened := 0
	for _, path := range paths {
		got, gotErr := place.stat(path)
		want, wantErr := statPath(path)
		if got != want || (gotErr == nil) != (wantErr == nil) || gone(gotErr) != gone(wantErr) {
			t.Errorf("%s: %v, %v, want %v, %v", path, got, gotErr, want, wantErr)
		}
		if place.fd >= 0 {
			opened++
		}
	}
	if want := 3 * (len(paths)/3 - nearMin + 1); opened != want {
		t.Errorf("%d of %d were looked up in an open directory, want %d", opened, len(paths), want)
	}
	fd := place.fd
	if place.leave(); place.fd >= 0 {
		t.Error("the directory is not left")
	}
	if _, err := statFD(fd); err == nil {
		t.Error("its descriptor is open")
	}
}

// Files at rest take their share of a core and no more, also when every fourth look at them is ten times as dear.
func TestLooksKeepTheirShare(t *testing.T) {
	w := &Watcher{scanGap: time.Second, looksMin: looksMin, looks: looksMin}
	var took time.Duration
	const scans = 400
	for i := range scans {
		cost := 2 * time.Microsecond
		if i%4 == 0 {
			cost *= 10
		}
		now := time.Duration(w.looks) * cost
		w.planLooks(w.looks, now)
		if took += now; i == 0 {
			took = 0 // it knew nothing
		}
	}
	if most := scans * w.scanGap / restShare; took > most*11/10 || took < most/2 {
		t.Errorf("%v in %d scans, want about %v", took, scans, most)
	}
}
