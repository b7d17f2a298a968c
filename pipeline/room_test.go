package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"shipper/pipeline/record"
	"shipper/spool"
)

// Records that a group of the spool does not hold are refused, and what is said of the longest line is true, also where
// the record is longer than the line.
func TestCheckRoom(t *testing.T) {
	for _, c := range []record.Config{{}, {JSON: record.JSON{On: true}}, {Headers: []string{"path"}, Key: "path"}, {Container: record.CRI}} {
		for _, groupBytes := range []int64{256 << 10, 1 << 20, 16 << 20} {
			check := func(lineBytes int) error {
				cfg := &Config{Sources: []Source{{Name: "app", Topic: "t", LineBytesMax: lineBytes, Oversize: "split", Record: c}}}
				return CheckRoom(cfg, &spool.Plan{SegmentBytes: 4 * groupBytes})
			}
			err := check(20 << 20)
			if err == nil {
				t.Fatalf("%+v: lines of 20 MiB fit into groups of %d bytes", c, groupBytes)
			}
			_, advice, _ := strings.Cut(err.Error(), "max_line_bytes to ")
			var n int
			if _, err := fmt.Sscan(advice, &n); err != nil || int64(n) < groupBytes/2 {
				t.Fatalf("%q: %d, %v", advice, n, err)
			}
			if err := check(n); err != nil {
				t.Errorf("with its own advice: %v", err)
			}
			if check(n+1) == nil {
				t.Errorf("%+v: lines of %d bytes would fit into groups of %d too", c, n+1, groupBytes)
			}
		}
	}
}
