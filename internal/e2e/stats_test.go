package e2e

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"shipper/internal/kafkatest"
)

// statsOf asks the admin socket of the agent with this spool.
func statsOf(t *testing.T, spoolDir string) map[string]any {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(spoolDir, "admin.sock"))
	}}}
	resp, err := client.Get("http://agent/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// stats are the agent's counters that are numbers.
func (w *world) stats() map[string]float64 {
	w.t.Helper()
	out := map[string]float64{}
	for k, v := range statsOf(w.t, w.spoolDir()) {
		if f, ok := v.(float64); ok {
			out[k] = f
		}
	}
	return out
}

// wantStat compares one counter of the agent.
func (w *world) wantStat(name string, want float64) {
	w.t.Helper()
	if got, ok := w.stats()[name]; !ok || got != want {
		w.t.Errorf("%s is %v, want %v", name, got, want)
	}
}

// identities counts the producer ids and the highest epoch in the topic's batches.
func (w *world) identities() (ids int, epoch int16) {
	w.t.Helper()
	_, headers := kafkatest.ReadTopic(w.t, w.checker(), w.topic, w.read)
	seen := map[int64]bool{}
	for _, h := range headers {
		seen[h.ProducerID] = true
		epoch = max(epoch, h.Epoch)
	}
	return len(seen), epoch
}
