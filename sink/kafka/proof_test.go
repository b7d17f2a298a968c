package kafka

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
)

// nowhere is a journal that keeps nothing: the script says what is durable.
type nowhere struct{}

func (nowhere) Ack(uint32, AckedBatch, bool)                        { /* ack-durable */ }
func (nowhere) Identity(uint32, IdentityRecord)                     { /* identity-durable */ }
func (nowhere) MoveHead(uint32, uint64, uint64, uint64, AckedBatch) { /* head-durable */ }
func (nowhere) Skip(uint32, Batch)                                  { /* skipped */ }
func (nowhere) Held(uint32)                                         { /* loss */ }
func (nowhere) Refs(uint32, uint64, int)                            { panic("BUG: nobody asks") }
func (nowhere) Replace(uint32, *Replacement)                        { panic("BUG: nobody asks") }

// Every Resolve and every Heal ends in one line, and says what became of the
// records. The events are those of the transcripts in testdata/lane.
func TestProofLine(t *testing.T) {
	const began = "start head=10 last=0+10@100/5 id=7 from=0 partition=2\n"
	const alarm = "start head=30 last=20+10@120/5 id=7 from=0 partition=2\nroute ok leader=3 epoch=6\nepoch-end 110 epoch=6\n"
	for _, c := range []struct{ name, events, want string }{
		{"healthy", began + "offer 10+10 id=7 from=0 partition=2\nroute ok leader=1 epoch=5\nepoch-end 110 epoch=5\nanswer NONE base=110\nack-durable\n", ""},
		{"not sent", began + "offer 10+10 id=7 from=0 partition=2\nroute ok leader=1 epoch=5\nepoch-end 110 epoch=5\nlost not-sent\nwait 1s\nroute ok leader=1 epoch=5\nanswer NONE base=110\nack-durable\n", ""},
		{"after a start, it was not there", began + "offer 10+10 id=7 from=0 partition=2 doubt\nroute ok leader=1 epoch=5\nepoch-end 110 epoch=5\nanswer NONE base=110\nack-durable\n",
			"INFO records in doubt are settled: in_doubt=10 stored_already=0 resent=10 lost_by_broker=0 healed=0 possibly_doubled=0"},
		{"an answer was lost", began + "offer 10+10 id=7 from=0 partition=2\nroute ok leader=1 epoch=5\nepoch-end 110 epoch=5\nanswer NONE base=110\nack-durable\n" +
			"offer 20+10 id=7 from=0 partition=2\nlost\nwait 1s\nroute ok leader=1 epoch=5\nanswer NONE base=120 time=1000000000\nack-durable\n",
			"INFO records in doubt are settled: in_doubt=10 stored_already=10 resent=0 lost_by_broker=0 healed=0 possibly_doubled=0"},
		{"found in the log", began + "offer 10+10 old id=7 from=0 partition=2 doubt\nroute ok leader=1 epoch=5\nepoch-end 110 epoch=5\nread-back found=110 epoch=5\nack-durable\n",
			"INFO records in doubt are settled: in_doubt=10 stored_already=10 resent=0 lost_by_broker=0 healed=0 possibly_doubled=0"},
		{"cannot be told", began + "offer 10+10 old id=7 from=0 partition=2 doubt\nroute ok leader=1 epoch=5\nepoch-end 110 epoch=5\nread-back unknown epoch=5\nanswer NONE base=130\nack-durable\n",
			"WARN records in doubt are settled: in_doubt=10 stored_already=0 resent=10 lost_by_broker=0 healed=0 possibly_doubled=10"},
		{"taken back", began + "offer 10+10 old id=7 from=0 partition=2 doubt\nroute ok leader=1 epoch=5\nepoch-end 110 epoch=5\nread-back unknown epoch=5\nanswer NONE base=110\nack-durable\n",
			"INFO records in doubt are settled: in_doubt=10 stored_already=0 resent=10 lost_by_broker=0 healed=0 possibly_doubled=0"},
		{"healed", alarm + "loss from=10 held=0 last=0+10@100/5 epoch=6\nhead-durable\noffer 10+10 id=7 from=0 partition=2\nread-back absent epoch=6\nanswer NONE base=110\nepoch-end 110 epoch=6 of=5\nack-durable\noffer 20+10 id=7 from=0 partition=2\nanswer NONE base=120\nack-durable\n",
			"WARN a loss at the brokers is settled: in_doubt=0 stored_already=0 resent=20 lost_by_broker=0 healed=20 possibly_doubled=0"},
		{"lost, none held", alarm + "loss from=10 held=30 last=0+10@100/5 epoch=6\nhead-durable\n",
			"ERROR the brokers lost records that they had acknowledged, and the spool no longer holds them\n" +
				"WARN a loss at the brokers is settled: in_doubt=0 stored_already=0 resent=0 lost_by_broker=20 healed=0 possibly_doubled=0"},
		{"refused, nothing lost", began + "offer 10+10 id=7 from=0 partition=2\nroute ok leader=1 epoch=5\nepoch-end 110 epoch=5\nanswer OUT_OF_ORDER_SEQUENCE_NUMBER\nroute ok leader=1 epoch=5\nloss epoch=5\ngranted id=8 partition=2\nidentity-durable\nanswer NONE base=110\nack-durable\n",
			"WARN the lane goes on under a new producer id\n" +
				"INFO a loss at the brokers was looked for, and there is none: in_doubt=10 stored_already=0 resent=10 lost_by_broker=0 healed=0 possibly_doubled=0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := proofLines(t, c.events); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

var proofNumbers = regexp.MustCompile(`in_doubt=.* possibly_doubled=\d+`)

// proofLines has a lane live through events, and returns what is logged, but
// for why it waits.
func proofLines(t *testing.T, events string) string {
	var text bytes.Buffer
	s := NewSink(SinkConfig{Journal: nowhere{}, Logger: slog.New(slog.NewTextHandler(&text, nil))})
	s.ctx = t.Context()
	words := script{now: 1_000_000_000}
	s.now, s.random = func() int64 { return words.now }, func() uint32 { return 1 << 31 }
	s.question = func(func(context.Context) reply) { /* the script answers */ }
	s.open = func(*sender) { /* nor is anything sent */ }
	r := &row{recov: noDoubt, queue: refQueue{total: &s.refs}}
	for line := range strings.Lines(events) {
		w := strings.Fields(line)
		a := args{words: map[string]string{}}
		for _, x := range w[1:] {
			key, value, _ := strings.Cut(x, "=")
			a.words[key] = value
		}
		first := ""
		if len(w) > 1 {
			first = w[1]
		}
		ev := Event{Base: -1, AppendTime: -1}
		if err := words.event(&ev, w[0], first, &a); err != nil || a.err != nil {
			t.Fatal(line, err, a.err)
		}
		switch {
		case w[0] == "start":
			r.lane = words.lane
			r.ids = []IdentityRecord{{ProducerID: 7, Partition: 2, Topic: "t"}}
		case ev.Kind == EvOffer:
			r.queue.prepend([]Ref{{Batch: ev.Batch}})
		case ev.Kind == EvAckKept:
			r.queue.pop()
		case ev.Kind == EvAnswer:
			r.reckon.known = ev.Verdict == Acked && ev.AppendTime >= 0 && r.lane.stamp == stampNone
		case ev.Kind == EvLoss && !a.has("held"):
			ev.Held = r.lane.head
		}
		s.stepOnce(r, &ev)
	}
	var out []string
	for line := range strings.Lines(text.String()) {
		m := regexp.MustCompile(`level=(\w+) msg="?(.*?)"? (topic|cause)=`).FindStringSubmatch(line)
		if m == nil || strings.HasPrefix(m[2], "lane ") {
			continue
		}
		if n := proofNumbers.FindString(line); n != "" {
			m[2] += ": " + n
		}
		out = append(out, fmt.Sprintf("%s %s", m[1], m[2]))
	}
	return strings.Join(out, "\n")
}
