package record

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// feed gives s the lines of file from offset on, raised by shift, until stop says so.
func feed(s *Stream, file []byte, from, shift int64, stop func() bool) {
	for at := from; at < int64(len(file)); {
		end := at + int64(bytes.IndexByte(file[at:], '\n'))
		s.Line(Line{Bytes: file[at:end], Offset: at + shift, End: end + 1 + shift})
		at = end + 1
		if stop() {
			return
		}
	}
}

// A log is cut in two anywhere between its lines. Read as two files, with stops and restarts, it gives the records of the one.
func TestJoin(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		file, want := randomCRI(rng, 2+rng.IntN(40), true)
		cut := rng.IntN(len(file))
		cut += bytes.IndexByte([]byte(file[cut:]), '\n') + 1
		w := newWorld(t, Config{Container: CRI, RecordBytesMax: ContainerLineBytesMin}, file[:cut])
		w.stop = func() bool { return rng.IntN(4) == 0 }
		for w.turn() {
		}
		younger := []byte(file[cut:])
		older, next := w.at, Place{}
		for joining := older.Offset < int64(cut); joining; {
			s := w.f.NewStream("/var/log/a.log")
			s.Begin(&w.sc, nil, 0, older)
			feed(s, w.file, older.Offset, 0, func() bool { return false })
			if !s.Unfinished() && s.Joining() {
				t.Fatal("what is finished was not taken")
			}
			shift := s.Join(next)
			stopped := false
			feed(s, younger, next.Offset, shift, func() bool {
				for s.Joining() {
					r, ok := s.Peek(w.now)
					if !ok {
						return false
					}
					if stopped = w.stop(); stopped {
						return true
					}
					w.out = append(w.out, got{value: string(r.Value)})
					s.Take()
				}
				return true
			})
			if joining = s.Joining(); joining && !stopped {
				// The end is in neither file: the older one ends by itself.
				break
			}
			older, next, _ = s.Places(0)
		}
		w.at, w.stop = older, nil
		w.all()
		w.file, w.at = younger, next
		if out := values(w.all()); !slices.Equal(out, want) {
			t.Fatalf("cut at %d\ngot  %.2000q\nwant %.2000q", cut, out, want)
		}
	}
}
