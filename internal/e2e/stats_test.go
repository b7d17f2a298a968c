package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shipper/internal/kafkatest"
)

// adminGet asks the admin socket of the agent with this spool.
func adminGet(spoolDir, path string) (code int, body []byte, err error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(spoolDir, "admin.sock"))
	}}}
	resp, err := client.Get("http://agent" + path)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// statsOf waits for an agent that is being started: it may have delivered all before it listens.
func statsOf(t *testing.T, spoolDir string) (all map[string]any) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		code, body, err := adminGet(spoolDir, "/stats")
		if err == nil && code == http.StatusOK && json.Unmarshal(body, &all) == nil {
			return all
		}
		if time.Now().After(deadline) {
			t.Fatalf("GET /stats: %d, %s, %v", code, body, err)
		}
	}
}

// awaitHealth waits until GET /healthz answers this.
func (w *world) awaitHealth(code int, says string) {
	w.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		got, body, err := adminGet(w.spoolDir(), "/healthz")
		if got == code && strings.Contains(string(body), says) {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("GET /healthz: %d, %s, %v; want %d, %s", got, body, err, code, says)
		}
	}
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

// awaitStat waits until a counter of the agent is as high.
func (w *world) awaitStat(name string, want float64) {
	w.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); w.stats()[name] < want; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s is %v, want %v", name, w.stats()[name], want)
		}
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
