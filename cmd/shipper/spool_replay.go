// `shipper spool replay`: what was delivered and is still kept goes to Kafka once more, beside a running agent.
//
//	directory -> spool.Inspect -> batches delivered within --since -> kafka.Replay, each record marked by a header
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"shipper/pipeline"
	"shipper/sink/kafka"
	"shipper/spool"
)

// replayArgs say what goes out again.
type replayArgs struct {
	config        string
	topic, source string
	since         time.Duration
	timeout       time.Duration
	dryRun        bool
}

func (c *cli) replayCommand() *cobra.Command {
	a := &replayArgs{}
	cmd := &cobra.Command{
		Use:   "replay --config FILE --since DURATION",
		Short: "Send what was delivered and is still kept once more, each record marked by a header",
		Long: `Send what was delivered and is still kept (spool.retain_acked) once more, to the same topics and partitions, in the same order.
Every record has the header ` + kafka.ReplayHeader + `: SPOOL/LANE/INDEX, which names the line: the first delivery and each replay of it
have one place. Consumers see these lines again; what they do not want twice they leave out by that header.

What counts for --since is when a record was delivered, whenever its line was written or read: after an outage of a day, --since 1h is
all that went out within the hour. How many are left out because they were delivered before that is said. The agent's own lane of gap
records (spool.gap_topic) is left out unless its topic or ` + "`--source " + pipeline.GapSource + "`" + ` is asked for.

Works beside a running agent or without one: the spool is only read, and the records have a producer of their own. Lines that
were not delivered yet are left to the agent.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.config == "" {
				return errors.New("--config FILE is required: it says where the spool and the brokers are")
			}
			if a.since <= 0 {
				return errors.New("--since DURATION is required, such as 2h: what was delivered longer ago is not sent again")
			}
			c.started = true
			return c.spoolReplay(cmd.Context(), a)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&a.config, "config", "c", "", "the agent's config")
	f.DurationVar(&a.since, "since", 0, "how far back: only records that were delivered since then, such as 2h")
	f.StringVar(&a.topic, "topic", "", "only lines of this topic")
	f.StringVar(&a.source, "source", "", "only lines of this source")
	f.DurationVar(&a.timeout, "timeout", time.Minute, "give a line up that no broker takes for so long")
	f.BoolVar(&a.dryRun, "dry-run", false, "only say what would be sent")
	return cmd
}

func (c *cli) spoolReplay(ctx context.Context, a *replayArgs) error {
	cfg, err := LoadConfig(a.config)
	if err != nil {
		return err
	}
	p, err := configToPipeline(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	v, err := newRecordLook(filepath.Clean(cfg.Spool.Dir))
	if err != nil {
		return err
	}
	in := v.in
	r := &replay{out: c.stdout, err: c.stderr, args: a, cfg: &p, oldest: time.Now().Add(-a.since).UnixMilli(), spool: hex.EncodeToString(in.SpoolID[:]), to: map[replayCodec]*kafka.Replay{}}
	if r.delivered, err = in.Deliveries(); err != nil {
		return err
	}
	defer func() {
		for _, to := range r.to {
			to.Close()
		}
	}()
	return r.run(ctx, c, v)
}

// replay is one run. The counts of outcomes belong to whoever holds mu.
type replay struct {
	out, err io.Writer
	args     *replayArgs
	cfg      *pipeline.Config
	to       map[replayCodec]*kafka.Replay // made when a lane needs it; a dry run needs none
	oldest   int64                         // ms
	spool    string
	records  uint64 // handed over
	older    uint64 // kept, but delivered before oldest
	undated  uint64 // of records: nothing says when they were delivered
	unread   int    // batches

	delivered *spool.Deliveries

	mu           sync.Mutex
	sent, failed uint64
	cause        error // of the first that failed
}

// laneReplay is what happens to one lane.
type laneReplay struct {
	records  uint64
	from, to int64 // times, ms
	first    uint64
}

func (r *replay) run(ctx context.Context, c *cli, v *recordLook) error {
	lanes := 0
	all := v.in.Lanes
	for i := range all {
		l := &all[i]
		if !r.args.wants(l) {
			continue
		}
		lanes++
		if err := r.lane(ctx, c, v, l); err != nil {
			return errors.Join(err, v.rd.Close())
		}
	}
	if err := v.rd.Close(); err != nil {
		return err
	}
	if lanes == 0 {
		return fmt.Errorf("%s has no lane of that topic or source; see `shipper spool ls`", r.cfg.Spool.Dir)
	}
	if r.older > 0 {
		fmt.Fprintf(r.err, "%d records are kept too that were delivered before that\n", r.older)
	}
	if r.undated > 0 {
		fmt.Fprintf(r.err, "of %d records the spool does not say when they were delivered: they are among them\n", r.undated)
	}
	if r.args.dryRun {
		fmt.Fprintf(r.out, "%d records would be sent again\n", r.records)
		return nil
	}
	var flushed error
	for _, to := range r.to {
		flushed = errors.Join(flushed, to.Flush(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "%d records were sent again, marked with the header %s\n", r.sent, kafka.ReplayHeader)
	switch {
	case r.failed > 0:
		return fmt.Errorf("%d records could not be sent: %w", r.failed, r.cause)
	case flushed != nil:
		return fmt.Errorf("stopped with %d records under way, which may arrive: %w", r.records-r.sent, flushed)
	case r.unread > 0:
		return fmt.Errorf("%d batches could not be read", r.unread)
	}
	return nil
}

// lane sends what is acked of one lane, was not dropped, and is young enough.
func (r *replay) lane(ctx context.Context, c *cli, v *recordLook, l *spool.LaneInfo) error {
	var refs []spool.Ref
	for _, ref := range l.Held {
		switch {
		case ref.Next() > l.Head || l.Dropped(ref):
		case r.deliveredBefore(l, ref):
			r.older += uint64(ref.Count)
		default:
			refs = append(refs, ref)
		}
	}
	to, err := r.clientOf(l)
	if err != nil {
		return err
	}
	did := laneReplay{first: l.Head}
	unread, err := c.laneRecords(io.Discard, v, l, refs, func(_ io.Writer, l *spool.LaneInfo, index uint64, rec *kafka.Record) error {
		if did.records == 0 {
			did.first, did.from, did.to = index, rec.Time, rec.Time
		}
		did.records++
		did.from, did.to = min(did.from, rec.Time), max(did.to, rec.Time)
		return r.send(ctx, to, l, index, rec)
	})
	r.unread += unread
	if did.records == 0 {
		return err
	}
	r.records += did.records
	fmt.Fprintf(r.out, "lane %d, source %s, topic %s/%d: %d records, their times from %s to %s\n", l.ID, l.Block, l.Topic, l.PartitionOf(did.first), did.records,
		time.UnixMilli(did.from).UTC().Format(time.RFC3339), time.UnixMilli(did.to).UTC().Format(time.RFC3339))
	if len(refs) > 0 && refs[0] == l.Held[0] && did.first > 0 && did.first == refs[0].First {
		fmt.Fprintf(r.err, "lane %d: what was delivered before its record %d is no longer kept (spool.retain_acked), whenever that was\n", l.ID, did.first)
	}
	return err
}

// wants tells whether a lane was asked for: the agent's own only by its name.
func (a *replayArgs) wants(l *spool.LaneInfo) bool {
	if l.Block == pipeline.GapSource && a.source == "" && a.topic == "" {
		return false
	}
	return (a.topic == "" || a.topic == l.Topic) && (a.source == "" || a.source == l.Block)
}

// deliveredBefore tells whether a batch was delivered before --since. Where nothing
// says when, it is not left out: twice and marked is better than missing.
func (r *replay) deliveredBefore(l *spool.LaneInfo, ref spool.Ref) bool {
	at, ok := r.delivered.Time(l.ID, ref.First)
	if !ok {
		r.undated += uint64(ref.Count)
	}
	return ok && at < r.oldest
}

// clientOf is who sends a lane's records: a client has one compression. A lane of a source that is configured no more has
// that of all.
func (r *replay) clientOf(l *spool.LaneInfo) (*kafka.Replay, error) {
	if r.args.dryRun {
		return nil, nil
	}
	name, level := r.cfg.Kafka.Compression, r.cfg.Kafka.CompressionLevel
	for i := range r.cfg.Sources {
		if s := &r.cfg.Sources[i]; s.Name == l.Block && s.Compression != "" {
			name, level = s.Compression, s.CompressionLevel
		}
	}
	codec, err := kafka.ParseCodec(name)
	c := replayCodec{codec, level}
	if err == nil && r.to[c] == nil {
		r.to[c], err = kafka.NewReplay(r.cfg.Kafka.ClientConfig(r.cfg.Logger), codec, level, r.args.timeout)
	}
	return r.to[c], err
}

// replayCodec is how a client compresses.
type replayCodec struct {
	codec kafka.Codec
	level int
}

func (r *replay) send(ctx context.Context, to *kafka.Replay, l *spool.LaneInfo, index uint64, rec *kafka.Record) error {
	if to == nil {
		return nil
	}
	mark := fmt.Sprintf("%s/%d/%d", r.spool, l.ID, index)
	to.Send(ctx, l.Topic, l.PartitionOf(index), rec, mark, func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err == nil {
			r.sent++
			return
		}
		if r.failed++; r.cause == nil {
			r.cause = err
		}
	})
	return ctx.Err()
}
