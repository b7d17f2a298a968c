package tail

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A time too far away for nanoseconds stays on its side of the present.
func TestTimesFarAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, year := range []int{1902, 2300, 2400} {
		to := unix.Timespec{Sec: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix()}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{to, to}, 0); err != nil {
			t.Fatal(err)
		}
		st, err := statPath(path)
		if err != nil {
			t.Fatal(err)
		}
		if past := st.mtime < time.Now().UnixNano(); past != (year < 2000) {
			t.Errorf("%d is taken for %v", year, time.Unix(0, st.mtime))
		}
	}
	if early, late := nanos(-20_000_000_000, 0), nanos(20_000_000_000, 0); early > -9e18 || late < 9e18 {
		t.Errorf("%d and %d nanoseconds", early, late)
	}
}
