package tail

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// FuzzResume reads a file in random pieces with a random stop, then changes one byte or none: reading goes on
// only if all that is remembered is still there.
func FuzzResume(f *testing.F) {
	f.Add(uint64(1), 100, 50, 0)
	f.Add(uint64(2), 5000, 4000, 3999)
	f.Add(uint64(3), 5000, 4000, 1500)
	f.Add(uint64(4), 1024, 1024, 1023)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, seed uint64, size, stop, changed int) {
		if size < 1 || size > 1<<16 || stop < 0 || stop > size || changed < -1 || changed >= size {
			return
		}
		rng := rand.New(rand.NewPCG(seed, 2))
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(rng.UintN(256))
		}
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		fd, err := openRead(path)
		if err != nil {
			t.Fatal(err)
		}
		defer closeFD(fd)
		var r reading
		for int(r.offset()) < stop { // Fill, Next, drained
			anchor := r.anchorLen
			from := int(r.offset()) - anchor
			r.place(data[from:min(size, from+anchor+1+rng.IntN(3000))], anchor)
			r.pos += min(rng.IntN(2000), len(r.buf)-r.pos, stop-int(r.offset()))
			if rng.IntN(4) == 0 {
				r.prefix()
			}
			if c := r.cursor(); int(c.AnchorBytes) != min(anchorBytesMax, int(r.offset())) {
				t.Fatalf("anchor of %d bytes at %d", c.AnchorBytes, r.offset())
			}
			r.settle()
		}
		if n := min(prefixBytesMax, stop); r.headLen != n || !bytes.Equal(r.head[:n], data[:n]) {
			t.Fatalf("head of %d bytes at %d", r.headLen, stop)
		}
		c := r.cursor()
		var fp Fingerprint
		fp.Prefix, fp.PrefixBytes = r.prefix()

		if changed >= 0 {
			data[changed]++
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want := changed < 0 || changed >= stop || changed >= int(fp.PrefixBytes) && changed < stop-int(c.AnchorBytes)
		var again reading
		if got, err := again.resume(readFD(fd), fp, c); err != nil || got != want {
			t.Fatalf("resume at %d with byte %d changed = %v, %v", stop, changed, got, err)
		}
		if want && again.cursor() != c && changed < stop-anchorBytesMax {
			t.Fatalf("cursor %+v became %+v", c, again.cursor())
		}
	})
}

func TestCompressed(t *testing.T) {
	for head, want := range map[string]string{"": "", "\x1f": "", "\x1f\x8b\x08": "gzip", "BZh9": "bzip2", "2024-01-01": "", "\x28\xb5\x2f\xfd\x00": "zstd"} {
		if got := compressed([]byte(head)); got != want {
			t.Errorf("compressed(%q) = %q, want %q", head, got, want)
		}
	}
}
