//go:build long

package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// kubelet keeps a container's log as a real one does: what was renamed before is compressed into a .tmp that gets its name when it is
// whole and no times, all but the newest five are removed, and the live file is renamed by the time in seconds.
type kubelet struct {
	t       *testing.T
	live    string
	rotated int
	kept    []string // the newest one is not compressed yet
	at      string   // the time of the last one
}

const (
	kubeletKeeps = 5
	kubeletDate  = ".20060102-150405" // what it puts behind the name
)

func (k *kubelet) must(err error) {
	if err != nil {
		k.t.Error(err)
	}
}

func (k *kubelet) write(text string) {
	f, err := os.OpenFile(k.live, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString(text)
		f.Close()
	}
	k.must(err)
}

// rotate does nothing twice in a second: names would be the same.
func (k *kubelet) rotate() {
	now := time.Now().Format(kubeletDate)
	if now == k.at {
		return
	}
	k.at = now
	if n := len(k.kept); n > 0 {
		k.must(compressAs(k.kept[n-1], false, 0))
		k.kept[n-1] += ".gz"
	}
	for len(k.kept) >= kubeletKeeps {
		k.must(os.Remove(k.kept[0]))
		k.kept = k.kept[1:]
	}
	to := k.live + now
	k.must(os.Rename(k.live, to))
	k.kept = append(k.kept, to)
	k.rotated++
}

// compressAs makes a compressed copy as a .tmp that gets its name when it is whole, and removes the original. With a pause the copy
// is written in pieces, that long after each other.
func compressAs(path string, keepTime bool, pause time.Duration) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(data); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	out, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	defer out.Close()
	pieceBytes := packed.Len()
	if pause > 0 {
		pieceBytes = packed.Len()/slowPieces + 1
	}
	for piece := range slices.Chunk(packed.Bytes(), pieceBytes) {
		time.Sleep(pause)
		if _, err := out.Write(piece); err != nil {
			return err
		}
	}
	if keepTime {
		if err := os.Chtimes(path+".tmp", st.ModTime(), st.ModTime()); err != nil {
			return err
		}
	}
	if err := os.Rename(path+".tmp", path+".gz"); err != nil {
		return err
	}
	time.Sleep(pause)
	return os.Remove(path)
}

const slowPieces = 8

// wantPieces is want for messages of long pieces that begin with their stream and number: only these are told.
func (f *forms) wantPieces(want []string, pieceBytes int) {
	f.t.Helper()
	got := f.records(len(want))
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = string(got[i].Value)
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			f.t.Errorf("record %d\n got %q\nwant %q", i, piecesOf(g, pieceBytes), piecesOf(w, pieceBytes))
		}
	}
}

func piecesOf(message string, pieceBytes int) (list []string) {
	for ; message != ""; message = message[min(len(message), pieceBytes):] {
		list = append(list, message[:min(len(message), len("stdout 1234"))])
	}
	return list
}

// C081: long messages of two streams, in pieces of 16 KiB, go on over rotations of the file, some through whole generations, while
// the agent is killed and stopped at random and the files are compressed under its hands: each message once, whole, in order.
func TestC081LongMessages(t *testing.T) {
	const pieceBytes, pieces, messages, rotateIn = 16 << 10, 35, 60, 50
	f := newForms(t, "    container: cri\n    multiline: {timeout: 30s}\n")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	pod := filepath.Join(f.dir, "..", "pods", "c")
	if err := os.MkdirAll(pod, 0o755); err != nil {
		t.Fatal(err)
	}
	k := &kubelet{t: t, live: filepath.Join(pod, "0.log")}
	if err := os.Symlink(k.live, filepath.Join(f.dir, "x.log")); err != nil {
		t.Fatal(err)
	}
	want := []string{"first"}
	k.write("2026-01-01T00:00:00Z stdout F first\n")
	f.agent.Start()
	f.awaitKnown("x.log", 0)
	written := make(chan struct{})
	go func() {
		defer close(written)
		var left [2]int // pieces of the message that is being written
		var at [2]int
		for began, n := 0, 0; began < messages || left[0]+left[1] > 0; n++ {
			s := rng.IntN(2)
			if left[s] == 0 {
				if began == messages {
					continue
				}
				began++
				left[s], at[s] = 1+rng.IntN(pieces), len(want)
				want = append(want, "")
			}
			left[s]--
			stream, tag := []string{"stdout", "stderr"}[s], "P"
			if left[s] == 0 {
				tag = "F"
			}
			piece := fmt.Sprintf("%s %d ", stream, n)
			piece += strings.Repeat("0123456789abcdef"[rng.IntN(16):], pieceBytes)[:pieceBytes-len(piece)]
			want[at[s]] += piece
			k.write("2026-01-01T00:00:00Z " + stream + " " + tag + " " + piece + "\n")
			if rng.IntN(rotateIn) == 0 {
				k.rotate()
			}
			time.Sleep(time.Duration(1+rng.IntN(14)) * time.Millisecond)
		}
	}()
	trouble := rand.New(rand.NewPCG(seed, 1))
	for range 3 {
		f.agent.KillLoop(2, 100*time.Millisecond, 2*time.Second, seed+trouble.Uint64N(1000))
		f.agent.Start()
		time.Sleep(time.Duration(trouble.IntN(1500)) * time.Millisecond)
		f.agent.Signal(syscall.SIGSTOP) // meanwhile rotations go on, perhaps several
		time.Sleep(time.Duration(500+trouble.IntN(2500)) * time.Millisecond)
		f.agent.Signal(syscall.SIGCONT)
	}
	<-written
	t.Logf("%d rotations", k.rotated)
	f.wantPieces(want, pieceBytes)
	f.stop()
}
