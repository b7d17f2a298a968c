package tail

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// The cases of the field that need more than a script; the others are scripts, named after their number.

// TestC044CrashInRotation rotates by rename and by copytruncate and loses everything that was not saved at random places
// around it: nothing is missing, nothing comes twice, whatever the crash took back.
func TestC044CrashInRotation(t *testing.T) {
	seed := *tortureSeed
	if seed == 0 {
		seed = rand.Uint64N(1e9) + 1
	}
	for _, style := range []string{"rename", "copytruncate"} {
		t.Run(fmt.Sprintf("%s/seed-%d", style, seed), func(t *testing.T) {
			x := newTorturer(t, seed)
			x.create(filepath.Join(x.dir, "app.log"))
			x.write(x.live[0])
			x.pollAll()
			x.save()
			for range 50 {
				x.write(x.live[0])
				x.perhaps(x.pollAll, x.save, x.crash)
				if style == "rename" {
					x.rename(x.live[0])
				} else {
					x.copyTruncate(x.live[0])
				}
				x.perhaps(x.crash)
				x.write(x.live[0])
				x.perhaps(x.pollAll, x.crash)
				x.settle()
			}
			x.compare()
		})
	}
}

// perhaps does some of it.
func (x *torturer) perhaps(steps ...func()) {
	for _, step := range steps {
		if x.rng.IntN(2) == 0 {
			step()
		}
	}
}

// TestC061Garbage reads bytes without meaning, with and without newlines, within the limit of a line; the lines behind
// them are whole.
func TestC061Garbage(t *testing.T) {
	const garbageBytes, lineBytes = 20 << 20, 100_000
	m := newMachine(t, false)
	m.opts.Blocks = []Block{{Name: "b", Paths: []string{m.dir + "/*.log"}, LineBytesMax: lineBytes}}
	chunk := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{61}).Read(chunk)
	data := bytes.Repeat(chunk, garbageBytes/len(chunk))
	data = append(append(data, bytes.ReplaceAll(data, []byte("\n"), []byte("x"))...), '\n')
	for i := range 100 {
		data = fmt.Appendf(data, "good %d\n", i)
	}
	if err := os.WriteFile(m.dir+"/a.log", data, 0o644); err != nil {
		t.Fatal(err)
	}
	var total, good int
	m.onLine = func(_ *File, l Line) {
		if len(l.Bytes) > lineBytes {
			t.Errorf("a record of %d bytes", len(l.Bytes))
		}
		total += len(l.Bytes)
		if bytes.Equal(l.Bytes, fmt.Appendf(nil, "good %d", good)) {
			good++
		}
	}
	m.poll()
	if good != 100 {
		t.Errorf("%d good lines of 100", good)
	}
	if len(m.buf) > lineBytes+FillBytesMin {
		t.Errorf("a buffer of %d bytes", len(m.buf))
	}
	if want := garbageBytes + garbageBytes*255/256 - 4096; total < want {
		t.Errorf("%d bytes arrived", total)
	}
}
