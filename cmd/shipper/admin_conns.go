package main

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Who connects to the admin interface and says nothing, or does not take the answer, must not use up the agent's descriptors, which
// log files need.
const (
	adminConnsMax   = 16
	adminIdleMax    = 2 * time.Minute // longer than programs wait between two questions
	adminHeaderMax  = 5 * time.Second
	adminRequestMax = time.Minute // to read one with its body, and to answer it
	adminHeaderSize = 16 << 10    // bytes
)

// adminConns bounds the connections of a server. One more takes the place of that which has been silent for longest, so that
// silent ones keep nobody out; where all are being answered, it is closed.
type adminConns struct {
	mu     sync.Mutex
	silent []net.Conn // no request of theirs is being answered; who has been so for longest comes first
	busy   map[net.Conn]bool
}

// note is for http.Server.ConnState.
func (a *adminConns) note(c net.Conn, state http.ConnState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := slices.Index(a.silent, c)
	known := at >= 0 || a.busy[c] || state == http.StateNew // else it was closed here
	if at >= 0 {
		a.silent = slices.Delete(a.silent, at, at+1)
	}
	delete(a.busy, c)
	switch {
	case !known:
	case state == http.StateActive:
		a.busy[c] = true
	case state == http.StateNew, state == http.StateIdle:
		a.silent = append(a.silent, c)
	}
	if len(a.silent)+len(a.busy) > adminConnsMax {
		_ = a.silent[0].Close()
		a.silent = slices.Delete(a.silent, 0, 1)
	}
}

func newAdminServer(handler http.Handler) *http.Server {
	conns := adminConns{busy: map[net.Conn]bool{}}
	return &http.Server{Handler: handler, ConnState: conns.note, MaxHeaderBytes: adminHeaderSize,
		ReadHeaderTimeout: adminHeaderMax, ReadTimeout: adminRequestMax, WriteTimeout: adminRequestMax, IdleTimeout: adminIdleMax}
}
