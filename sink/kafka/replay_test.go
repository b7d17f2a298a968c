package kafka

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// What a replay sends is compressed as the agent compresses, to about as many bytes.
func TestReplayCompressesLikeTheAgent(t *testing.T) {
	var text []byte
	for i := range 6000 {
		text = fmt.Appendf(text, "2026-11-30T10:%02d:%02d.%03dZ level=INFO msg=\"request %d took %d ms\" user=u%d\n", i/60%60, i%60, i*7%1000, i*i, i*31%977, i*i%4099)
	}
	compress := func(codec Codec, level int) int {
		c, err := kgo.DefaultCompressor(replayCompression(codec, level))
		if err != nil {
			t.Fatal(err)
		}
		out, _ := c.Compress(new(bytes.Buffer), text)
		return len(out)
	}
	for codec, levels := range map[Codec][]int{Snappy: {0}, Gzip: {0, 9}, LZ4: {0, 1, 9}, Zstd: {0, 3, 19}} {
		for _, level := range levels {
			ours, err := NewCompressor(codec, level)
			if err != nil {
				t.Fatal(err)
			}
			want := len(ours.compress(make([]byte, 0, 2*len(text)), text))
			if got := compress(codec, level); got < want*8/10 || got > want*12/10 {
				t.Errorf("%s, level %d: %d bytes of %d, the agent makes %d", codec, level, got, len(text), want)
			}
		}
	}
}
