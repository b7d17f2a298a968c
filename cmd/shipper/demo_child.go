package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// child is a process of this same program. It does not outlive us.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	err   error         // how it ended; valid once ended is closed
}

func startChild(stdout, stderr io.Writer, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	c := &child{cmd: exec.Command(self, args...), ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.SysProcAttr = stdout, stderr, childAttributes()
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start `shipper %s`: %w", args[0], err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// kill ends c with SIGKILL and returns when it is gone. A nil child is gone already.
func (c *child) kill() {
	if c == nil {
		return
	}
	_ = c.cmd.Process.Kill() // fails only if it has ended
	<-c.ended
}

// stop ends c with SIGTERM; anything but exit code 0 within limit is an error.
func (c *child) stop(limit time.Duration) error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-c.ended:
		return c.err
	case <-time.After(limit):
		c.kill()
		return fmt.Errorf("it did not end within %v of SIGTERM", limit)
	}
}

// stats is the part of the agent's GET /stats that the demo shows.
type stats struct {
	LinesRead            int64   `json:"lines_read"`
	BytesRead            int64   `json:"bytes_read"`
	LinesSpooled         int64   `json:"lines_spooled"`
	LinesAcked           int64   `json:"lines_acked"`
	SpoolBytes           int64   `json:"spool_bytes"`
	OldestUnackedSeconds float64 `json:"oldest_unacked_seconds"`
}

// agentStats asks the agent behind the admin socket. It fails while the agent starts or is dead.
func agentStats(ctx context.Context, socket string) (s stats, err error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}
	client := http.Client{Transport: transport, Timeout: 500 * time.Millisecond}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/stats", nil)
	if err != nil {
		return s, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return s, errors.New(resp.Status)
	}
	return s, json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&s)
}
