package main

import (
	"slices"
	"testing"
	"time"

	"shipper/sink/kafka"
)

func TestHealth(t *testing.T) {
	lane := func(topic string, waits kafka.Cause, batches int) kafka.LaneView {
		return kafka.LaneView{Topic: topic, Waits: waits, Batches: batches}
	}
	views := []kafka.LaneView{lane("web", kafka.CauseUnreachable, 3), lane("app", kafka.CauseNoTopic, 1), lane("web", kafka.CauseUnreachable, 1),
		lane("idle", kafka.CauseUnreachable, 0), lane("well", kafka.CauseNone, 2)}
	for _, c := range []struct {
		name   string
		views  []kafka.LaneView
		oldest time.Duration
		want   []string
	}{
		{"nothing waits", nil, 0, nil},
		{"not for long", views, healthyWaitMax, nil},
		{"a backlog that is sent", []kafka.LaneView{lane("well", kafka.CauseNone, 9)}, time.Hour, nil},
		{"two causes", views, time.Minute, []string{"topic app: topic unknown, lanes 1, oldest line 60 s: create the topic", "topic web: broker unreachable, lanes 2, oldest line 60 s"}},
	} {
		if got := healthOf(c.views, c.oldest); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
