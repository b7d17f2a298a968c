package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"shipper/sink/kafka"
)

func TestChooseLanes(t *testing.T) {
	views := []kafka.LaneView{
		{ID: 1, Source: "a", Topic: "logs", Slot: 0, Waits: kafka.CauseOtherCluster},
		{ID: 2, Source: "a", Topic: "logs", Slot: 1},
		{ID: 3, Source: "old", Topic: "logs", Slot: 1},
		{ID: 5, Source: "keys", Topic: "logs", Slot: kafka.KeyedSlot | 7},
		{ID: 4, Source: "b", Topic: "audit", Slot: 0, Waits: kafka.CauseOtherCluster},
	}
	for name, want := range map[string]string{
		"logs/0": "1", "audit/0": "4", "3": "3", "logs/key-7": "5", "all": "1 4",
		"logs/1": `"logs/1" is the name of 2 lanes; give the number of one: 2 (source a), 3 (source old)`,
		"logs":   "there is no lane \"logs\"; `shipper fix lane` lists them",
		"logs/7": "there is no lane \"logs/7\"; `shipper fix lane` lists them",
	} {
		chosen, err := chooseLanes(views, name)
		var ids []string
		for _, v := range chosen {
			ids = append(ids, string(rune('0'+v.ID)))
		}
		got := strings.Join(ids, " ")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if _, err := chooseLanes(views[1:3], "all"); err == nil {
		t.Error("all of none is no error")
	}
}

// A decision that comes over the loopback port is refused before the agent is asked.
func TestDecisionsOverTheSocketOnly(t *testing.T) {
	mux := http.NewServeMux()
	handleLanes(mux, nil)
	r := httptest.NewRequest(http.MethodPost, "/lanes/adopt?lane=all", nil)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{})))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden {
		t.Errorf("status %d, want %d", w.Code, http.StatusForbidden)
	}
}
