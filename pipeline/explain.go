package pipeline

import (
	"context"

	"shipper/spool"
	"shipper/tail"
)

// Explain tells what the agent makes of an absolute path: what the watcher
// knows, and for each source of it, by id, how far its lines are. The error is
// the end of ctx. Any goroutine may ask.
func (a *Agent) Explain(ctx context.Context, path string) (tail.Explained, map[uint64]FileProgress, error) {
	e, err := a.watcher.Explain(ctx, path)
	if err != nil {
		return e, nil, err
	}
	far := map[uint64]FileProgress{}
	for _, b := range e.Blocks {
		if b.File == nil || b.File.ID == 0 {
			continue
		}
		if p, ok := a.commits.seen.of(b.File.ID); ok {
			far[b.File.ID] = p
		}
	}
	return e, far, nil
}

// Survey is what a start with cfg would find now, for an agent that does not
// run. It changes nothing. in is the spool, nil if there is none.
func Survey(cfg Config, in *spool.Inspection) (*tail.Survey, error) {
	a := &Agent{cfg: cfg}
	var known []tail.Known
	had := begun{}
	if in != nil {
		had.note(in.Begun)
		for i := range in.Lanes {
			had.lane(in.Lanes[i].Lane, in.Lanes[i].Next)
		}
		for i := range in.Sources {
			known = append(known, knownSource(&in.Sources[i]))
		}
	}
	return tail.NewSurvey(a.tailOptions(known, had))
}
