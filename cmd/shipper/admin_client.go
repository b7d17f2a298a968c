package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// The other end of the admin socket: what commands ask of a running agent.

const (
	callMax       = 10 * time.Second
	replyBytesMax = 16 << 20
)

// callAgent sends one request to the agent behind a socket and decodes its JSON into out. running is false if none listens;
// what a running one says against the request is the error.
func callAgent(ctx context.Context, socket, method, path string, out any) (running bool, err error) {
	if socket == "off" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, method, "http://shipper"+path, nil)
	if err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("the agent behind %s does not answer: %w", socket, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, replyBytesMax))
	if err != nil {
		return true, fmt.Errorf("the agent behind %s does not answer: %w", socket, err)
	}
	if resp.StatusCode != http.StatusOK {
		return true, fmt.Errorf("the agent says: %s", strings.TrimSpace(string(body)))
	}
	if err := json.Unmarshal(body, out); err != nil {
		return true, fmt.Errorf("the agent behind %s answers something else: %w", socket, err)
	}
	return true, nil
}
