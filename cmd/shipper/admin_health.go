package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"shipper/pipeline"
	"shipper/sink/kafka"
)

// GET /healthz: 200 and `ok` while lines get through. 503 and a line for each cause once the oldest of them has waited for
// longer than healthyWaitMax and a lane says what it waits for: brokers away or that refuse us, rights, topics, a decision.
// Nothing of that is cured by a restart.

const (
	healthyWaitMax  = 10 * time.Second
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
	failing := healthOf(views, agent.Stats().OldestUnacked)
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
