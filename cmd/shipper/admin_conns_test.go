package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
)

// Clients that connect and say nothing, say half a request, or stay after their answer: all but a few are closed at once, and
// whoever asks something is answered.
func TestAdminSilentClients(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	l, err := listenSocket(socket)
	if err != nil {
		t.Fatal(err)
	}
	a := &admin{server: newAdminServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))}
	go a.serve(l, slog.New(slog.DiscardHandler))
	defer a.close()
	const clients = 300 // of each kind
	ended := make(chan error, 3*clients)
	for range clients {
		for _, says := range []string{"", "GET /stats HT", "GET /stats HTTP/1.1\r\nHost: shipper\r\n\r\n"} {
			c, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = io.WriteString(c, says) // it may be closed already
			go func() {
				_, err := io.Copy(io.Discard, c)
				ended <- err
			}()
		}
	}
	for range 3*clients - adminConnsMax {
		<-ended
	}
	for range adminConnsMax { // none is kept
		client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}}
		r, err := client.Get("http://shipper/stats")
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != "ok" {
			t.Errorf("%q, %v", body, err)
		}
		defer r.Body.Close()
	}
}

// One more than can be answered at a time is closed, and the others get their answers.
func TestAdminBusyClients(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	l, err := listenSocket(socket)
	if err != nil {
		t.Fatal(err)
	}
	asked, answer := make(chan struct{}), make(chan struct{})
	a := &admin{server: newAdminServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-answer }))}
	go a.serve(l, slog.New(slog.DiscardHandler))
	defer a.close()
	var all []net.Conn
	dial := func() net.Conn {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for range adminConnsMax {
		c := dial()
		_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
		<-asked
		all = append(all, c)
	}
	if text, _ := io.ReadAll(dial()); len(text) > 0 {
		t.Errorf("one more was answered: %q", text)
	}
	close(answer)
	for _, c := range all {
		if text, err := io.ReadAll(c); len(text) == 0 || err != nil {
			t.Errorf("%q, %v", text, err)
		}
	}
}
