package record

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
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

// A log is cut into files anywhere between its lines. Read as these, with stops and restarts, it gives the records of the one.
func TestJoin(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		log, want := randomCRI(rng, 2+rng.IntN(40), true)
		var files [][]byte
		for log != "" {
			cut := min(len(log), rng.IntN(2*len(log)+1))
			cut += strings.IndexByte(log[cut:], '\n') + 1 // 0 at the end of the log
			files = append(files, []byte(log[:cut]))
			log = log[cut:]
		}
		w := newWorld(t, Config{Container: CRI, RecordBytesMax: ContainerLineBytesMin}, "")
		at := make([]Place, len(files)+1)
		for len(files) > 0 {
			w.file, w.at, w.stop = files[0], at[0], func() bool { return rng.IntN(4) == 0 }
			for w.turn() {
			}
			at[0] = w.at
			for at[0].Offset < int64(len(files[0])) {
				if !readJoined(w, files, at) {
					w.now = w.now.Add(time.Minute) // the end is in none of them
				}
			}
			files, at = files[1:], at[1:]
		}
		if out := values(w.out); !slices.Equal(out, want) {
			t.Fatalf("got  %.2000q\nwant %.2000q", out, want)
		}
	}
}

// readJoined looks at all files as at one until a stop, and moves their places. It says whether anything may come of another look.
func readJoined(w *world, files [][]byte, at []Place) (more bool) {
	s := w.s
	s.Begin(&w.sc, nil, 0, at[0])
	feed(s, files[0], at[0].Offset, 0, func() bool { return false })
	stopped, n := false, 1
	take := func() bool {
		for {
			r, ok := s.Peek(w.now)
			if !ok {
				return !s.Joining()
			}
			if stopped = w.stop(); stopped {
				return true
			}
			w.out = append(w.out, got{value: string(r.Value)})
			s.Take()
		}
	}
	for ; n < len(files) && !stopped && s.Joining(); n++ {
		feed(s, files[n], 0, s.Join(at[n].Note), take)
	}
	if s.Joining() && !stopped {
		s.End(w.now)
		take()
	}
	for i := range n {
		at[i], _ = s.PlaceIn(i)
	}
	return stopped || !s.Joining()
}
