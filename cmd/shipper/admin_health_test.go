package main

import (
	"slices"
	"testing"
	"time"

	"shipper/pipeline"
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

func TestSpoolHealth(t *testing.T) {
	const advice = ": see what Kafka does not take, whether the spool's volume can be written to, or raise spool.max_bytes"
	for _, c := range []struct {
		name string
		s    pipeline.Stats
		want []string
	}{
		{"there is room", pipeline.Stats{}, nil},
		{"not for long", pipeline.Stats{SpoolFullFor: healthyFullMax}, nil},
		{"reading pauses", pipeline.Stats{SpoolFullFor: 2 * time.Minute, Sources: []pipeline.SourceStats{{Name: "app", Paused: true}, {Name: "web"}, {Name: "db", Paused: true}}},
			[]string{"spool full for 120 s, reading pauses for app, db" + advice}},
		{"lines are dropped", pipeline.Stats{SpoolFullFor: time.Hour, Sources: []pipeline.SourceStats{{Name: "app"}}},
			[]string{"spool full for 3600 s, new lines are dropped and counted" + advice}},
	} {
		if got := spoolHealth(&c.s); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
