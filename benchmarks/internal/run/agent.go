//go:build linux

package run

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"shipper/benchmarks/internal/broker"
)

// AgentOptions of a `shipper run` process.
type AgentOptions struct {
	Bin     string
	CPU     int
	Dir     string   // config, spool and log go here
	Broker  string   // host:port
	Paths   []string // globs, spread over the sources
	Sources int      // 0: one
	Lanes   int      // of each source; 0: the default
	Codec   string

	SpoolBytesMax  int64 // 0: the agent's default
	MemoryBytesMax int64 // 0: the agent's default
}

// Agent is a running shipper.
type Agent struct {
	*Process
	admin  http.Client
	logged string // path of its log
	log    *os.File
}

// AgentStats is what the agent says of itself at GET /stats.
type AgentStats struct {
	LinesRead           int64   `json:"lines_read"`
	BytesRead           int64   `json:"bytes_read"`
	LinesSpooled        int64   `json:"lines_spooled"`
	LinesAcked          int64   `json:"lines_acked"`
	SpoolBytes          int64   `json:"spool_bytes"`
	OldestUnackedSecond float64 `json:"oldest_unacked_seconds"`
	Syncs               int64   `json:"syncs"`
	SpoolBytesWritten   int64   `json:"spool_bytes_written"`
	SpoolFullSeconds    float64 `json:"spool_full_seconds"`
}

// agentConfig leaves everything at its default that is not named.
var agentConfig = template.Must(template.New("config").Parse(`kafka:
  brokers: ["{{.Broker}}"]
  compression: {{.Codec}}
spool:
  dir: "{{.Dir}}/spool"
{{- if .SpoolBytesMax}}
  max_bytes: {{.SpoolBytesMax}}
{{- end}}
{{- if .MemoryBytesMax}}
memory_limit: {{.MemoryBytesMax}}
{{- end}}
sources:
{{- range $i, $paths := .Blocks}}
  - name: bench{{$i}}
    paths: [{{range $j, $p := $paths}}{{if $j}}, {{end}}"{{$p}}"{{end}}]
    topic: ` + broker.Topic + `
    {{- if $.Lanes}}
    lanes: {{$.Lanes}}{{end}}
{{- end}}
`))

// Blocks are the paths of each source.
func (o AgentOptions) Blocks() [][]string {
	blocks := make([][]string, max(1, o.Sources))
	for i, p := range o.Paths {
		blocks[i%len(blocks)] = append(blocks[i%len(blocks)], p)
	}
	return blocks
}

// StartAgent writes the config and starts the agent on it.
func StartAgent(o AgentOptions) (*Agent, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	var config strings.Builder
	if err := agentConfig.Execute(&config, o); err != nil {
		return nil, err
	}
	configPath := filepath.Join(o.Dir, "shipper.yaml")
	if err := os.WriteFile(configPath, []byte(config.String()), 0o600); err != nil {
		return nil, err
	}
	logPath := filepath.Join(o.Dir, "shipper.log")
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	p, err := Start(Command{Path: o.Bin, Args: []string{"run", "--config", configPath}, CPU: o.CPU, Stdout: log, Stderr: log})
	if err != nil {
		log.Close()
		return nil, err
	}
	a := &Agent{Process: p, logged: logPath, log: log}
	socket := filepath.Join(o.Dir, "spool", "admin.sock")
	a.admin = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	return a, nil
}

// Stats asks the agent.
func (a *Agent) Stats() (AgentStats, error) {
	var s AgentStats
	resp, err := a.admin.Get("http://shipper/stats")
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// WaitStats waits until the agent's figures satisfy done; what says what is waited for.
func (a *Agent) WaitStats(what string, timeout time.Duration, done func(AgentStats) bool) (AgentStats, error) {
	deadline := time.Now().Add(timeout)
	for {
		s, err := a.Stats()
		if err == nil && done(s) {
			return s, nil
		}
		if time.Now().After(deadline) {
			return s, fmt.Errorf("the agent did not get to %s within %v: %+v (%v); its log is %s", what, timeout, s, err, a.logged)
		}
		select {
		case <-a.Exited():
			return s, fmt.Errorf("the agent ended before %s: %v; its log is %s", what, a.Err(), a.logged)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the agent and makes sure that it left with exit code 0.
func (a *Agent) Stop() error {
	defer a.log.Close()
	a.admin.CloseIdleConnections()
	if err := a.Process.Stop(30 * time.Second); err != nil {
		return fmt.Errorf("stop the agent: %w; its log is %s", err, a.logged)
	}
	return nil
}
