package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"shipper/pipeline"
	"shipper/sink/kafka"
)

// GET /healthz: 200 and `ok` while lines get through. 503 and a line for each cause once the oldest of them has waited for
// longer than healthyWaitMax and a lane says what it waits for: brokers away or that refuse us, rights, topics, a decision;
// or once the spool has taken no new lines for longer than healthyFullMax: it is full, its volume is, or cannot be written to.
// Nothing of that is cured by a restart.

const (
	healthyWaitMax  = 10 * time.Second
	healthyFullMax  = time.Minute
	healthAnswerMax = 5 * time.Second // an agent that does not answer within is not well either
)

func writeHealth(w http.ResponseWriter, r *http.Request, agent *pipeline.Agent) {
	ctx, cancel := context.WithTimeout(r.Context(), healthAnswerMax)
	defer cancel()
	views, err := agent.Lanes(ctx)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	stats := agent.Stats()
	failing := append(healthOf(views, stats.Kafka.OldestUnacked), spoolHealth(&stats)...)
	if len(failing) == 0 {
		_, _ = fmt.Fprintln(w, "ok") // an error is the client's, who went away
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, line := range failing {
		_, _ = fmt.Fprintln(w, line)
	}
}

// healthOf says what keeps lines from Kafka; nothing if none has waited for long, which is what oldest tells.
func healthOf(views []kafka.LaneView, oldest time.Duration) (failing []string) {
	if oldest <= healthyWaitMax {
		return nil
	}
	type trouble struct {
		topic string
		cause kafka.Cause
	}
	lanes := map[trouble]int{}
	for _, v := range views {
		if v.Waits != kafka.CauseNone && v.Batches > 0 {
			lanes[trouble{v.Topic, v.Waits}]++
		}
	}
	for x, n := range lanes {
		line := fmt.Sprintf("topic %s: %s, lanes %d, oldest line %.0f s", x.topic, x.cause, n, oldest.Seconds())
		if advice := x.cause.Advice(); advice != "" {
			line += ": " + advice
		}
		failing = append(failing, line)
	}
	slices.Sort(failing)
	return failing
}

// spoolHealth says for how long the spool has taken no new lines, if that is long.
func spoolHealth(s *pipeline.Stats) []string {
	if s.SpoolFullFor <= healthyFullMax {
		return nil
	}
	var paused []string
	for i := range s.Sources {
		if s.Sources[i].Paused {
			paused = append(paused, s.Sources[i].Name)
		}
	}
	what := "new lines are dropped and counted"
	if len(paused) > 0 {
		what = "reading pauses for " + strings.Join(paused, ", ")
	}
	return []string{fmt.Sprintf("spool full for %.0f s, %s: see what Kafka does not take, whether the spool's volume can be written to, or raise spool.max_bytes", s.SpoolFullFor.Seconds(), what)}
}
