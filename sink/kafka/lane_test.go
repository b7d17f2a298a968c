package kafka

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

var update = flag.Bool("update", false, "write what the lane does into testdata/lane")

// Transcripts: what happens to a lane, one line each, and indented below it
// what the lane asks for. Batches are written first+count, acks
// first+count@offset/epoch. Words in use:
//
//	start head=0 top=30 last=0+10@100/5 id=7 from=0 partition=2
//	offer 0+10 id=7 from=0 partition=2 doubt old   old, future: an hour
//	route ok leader=1 epoch=5 ms-ago=0    or no-leader, no-topic, denied, other-topic, other-cluster, unknown
//	granted id=7 partition=2      identity-durable   ack-durable   head-durable
//	answer NONE base=100 time=1   or the name of any other Kafka error; named: it names records
//	cut / cut dead / cut same evened step=5s   what replaces the head is durable; dead: a gap; same: the boundaries are; evened: not the times
//	lost / lost not-sent / lost slow     the request failed
//	epoch-end 110 epoch=5         -1: not known; epoch of the question; of=3: that is the one that ends there; parted: it has none of the epoch asked for
//	read-back found=110 / absent / unknown
//	loss from=10 held=0 last=0+10@100/5 epoch=5   found: the last acked batch is there; unsure=20: what is below may be
//	failed   skipped   large   adopt   wait 15s
//
// An identity's epoch, if it is not 0, is written bump=1.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/lane/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			s := script{now: 1_000_000_000}
			got, err := s.run(string(want))
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(want) {
				t.Errorf("the lane does something else; -update writes it\n%s", got)
			}
		})
	}
}

// Every answer that a broker may give, and some that none gives yet: only a
// success acks, only a refusal by sequence costs the identity, and whatever it
// is, the same batch goes again in bounded time.
func TestEveryAnswer(t *testing.T) {
	for code := int16(-1); code < 250; code++ {
		s := script{now: 1_000_000_000}
		if _, err := s.run("start head=10 last=0+10@100/5 id=7 from=0 partition=2\noffer 10+10 id=7 from=0 partition=2\n" +
			"route ok leader=1 epoch=5\nepoch-end 110 epoch=5\n"); err != nil {
			t.Fatal(err)
		}
		verdict := VerdictOf(code)
		s.step(&Event{Kind: EvAnswer, Verdict: verdict, NotAppended: NotPersisted(code), Slow: Slow(code), Base: 110, AppendTime: -1})
		if verdict == Acked {
			if a := s.actions.All(); len(a) != 1 || a[0].Kind != ActAck || a[0].Acked.End != 120 {
				t.Errorf("code %d: %+v", code, a)
			}
			continue
		}
		if s.lane.InDoubt() == NotPersisted(code) {
			t.Errorf("code %d: in doubt is %v", code, s.lane.InDoubt())
		}
		mended := verdict == TooLarge || verdict == BadTime
		if waits := s.lane.Cause() != CauseNone; waits == (verdict == Refused || mended) {
			t.Errorf("code %d: cause %q", code, s.lane.Cause())
		}
		begin := s.now
		sent := s.untilSent(t)
		want := Identity{PID: 7, Partition: 2}
		if verdict == Refused {
			want = Identity{From: 10, PID: 8, Partition: 2}
		}
		if sent.Shift != (verdict == BadTime) {
			t.Errorf("code %d: times are moved: %v", code, sent.Shift)
		}
		if sent.Batch.First != 10 || sent.Batch.Count != 10 || sent.Identity != want || sent.Slow != Slow(code) {
			t.Errorf("code %d: then %+v", code, sent)
		}
		if s.now-begin > backoffHeldMs {
			t.Errorf("code %d: %d ms later", code, s.now-begin)
		}
	}
}

// untilSent answers whatever the lane asks, as a healthy cluster would, until
// it sends.
func (s *script) untilSent(t *testing.T) Action {
	for range 20 {
		a := s.actions.All()
		switch last := a[len(a)-1]; last.Kind {
		case ActSend:
			return last
		case ActRefresh:
			s.now++
			s.step(&Event{Kind: EvRoute, Route: Route{State: RouteOK, Leader: 1, Epoch: 5, AskedAt: s.now}})
		case ActWake:
			s.now = int64(last.Index)
			s.step(&Event{Kind: EvTick})
		case ActFindLoss:
			s.step(&Event{Kind: EvLoss, Lost: s.lane.Head(), Acked: AckedBatch{Epoch: -1}, Route: last.Route})
		case ActReadBack:
			s.step(&Event{Kind: EvReadBack, Absent: true, Route: last.Route})
		case ActCut:
			s.step(&Event{Kind: EvQuestionFailed, Cause: CauseTooLarge})
		case ActAskIdentity:
			s.step(&Event{Kind: EvGranted, Identity: Identity{PID: 8, Partition: 2}})
		case ActPersistIdentity, ActReport:
			s.step(&Event{Kind: EvIdentityKept})
		default:
			t.Fatalf("the lane asks for %+v", last)
		}
	}
	t.Fatal("nothing was sent")
	return Action{}
}

func TestBackoffIsBounded(t *testing.T) {
	for _, c := range []struct {
		verdict Verdict
		slow    bool
		limit   int64
	}{{Retry, false, backoffMaxMs}, {Retry, true, backoffMaxMs}, {Hold, false, backoffHeldMs}, {Denied, false, backoffHeldMs}} {
		s := script{now: 1_000_000_000}
		if _, err := s.run("start head=10 id=7 from=0 partition=2\noffer 10+10 id=7 from=0 partition=2\nroute ok leader=1 epoch=5\n"); err != nil {
			t.Fatal(err)
		}
		longest := int64(0)
		for range 300 {
			s.step(&Event{Kind: EvAnswer, Verdict: c.verdict, Slow: c.slow, Base: -1, AppendTime: -1})
			wait := int64(s.actions.All()[0].Index) - s.now
			longest = max(longest, wait)
			if wait < backoffMinMs/2 || wait > c.limit {
				t.Fatalf("%s waits %d ms, limit %d", c.verdict, wait, c.limit)
			}
			s.untilSent(t)
		}
		if longest < c.limit/2 {
			t.Errorf("%s never waits longer than %d ms, limit %d", c.verdict, longest, c.limit)
		}
	}
}

// The way of every batch: no allocation.
func TestStepAllocatesNothing(t *testing.T) {
	lane, a := NewLane(0, 0, AckedBatch{}, Identity{PID: 7, Partition: 2}), Actions{}
	now := int64(1_000_000_000)
	events := [...]Event{{Kind: EvRoute, Route: Route{State: RouteOK, Leader: 1, Epoch: 5}}, {Kind: EvOffer, Identity: Identity{PID: 7, Partition: 2}},
		{Kind: EvAnswer, Verdict: Acked, AppendTime: -1}, {Kind: EvAckKept}}
	lane.Step(&Event{Kind: EvTick, Now: now}, &a)
	first := uint64(0)
	n := testing.AllocsPerRun(1000, func() {
		now++
		for i := range events {
			ev := &events[i]
			ev.Now, ev.Route.AskedAt = now, now
			ev.Batch, ev.Base = Batch{First: first, Count: 10, MaxTime: now}, int64(first)
			lane.Step(ev, &a)
			if ev.Kind == EvOffer && a.All()[0].Kind != ActSend || ev.Kind == EvAnswer && a.All()[0].Kind != ActAck {
				t.Fatalf("the lane asks for %+v", a.All())
			}
		}
		first += 10
	})
	if n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
	if lane.Head() != first {
		t.Errorf("head %d, want %d", lane.Head(), first)
	}
}

type script struct {
	lane    Lane
	actions Actions
	now     int64
	cause   Cause
	out     strings.Builder
}

func (s *script) run(text string) (string, error) {
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, " ") {
			continue // what the lane did last time
		}
		fmt.Fprintln(&s.out, line)
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if err := s.do(words); err != nil {
			return "", fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return s.out.String(), nil
}

// args are the words of a line behind its first: flags and key=value.
type args struct {
	words map[string]string
	err   error
}

func (a *args) has(key string) bool { _, ok := a.words[key]; return ok }

func (a *args) int(key string, missing int64) int64 {
	text, ok := a.words[key]
	if !ok {
		return missing
	}
	n, err := strconv.ParseInt(text, 10, 64)
	a.err = errors.Join(a.err, err)
	return n
}

// acked reads first+count@offset/epoch of partition 2.
func (a *args) acked(key string) AckedBatch {
	x := AckedBatch{Epoch: -1}
	if a.has(key) {
		_, err := fmt.Sscanf(a.words[key], "%d+%d@%d/%d", &x.First, &x.Count, &x.Base, &x.Epoch)
		a.err = errors.Join(a.err, err)
		x.End, x.Partition = x.Base+int64(x.Count), 2
	}
	return x
}

func (a *args) identity() Identity {
	return Identity{From: uint64(a.int("from", 0)), PID: a.int("id", -1), Epoch: int16(a.int("bump", 0)), Partition: int32(a.int("partition", -1))}
}

var routeWords = map[string]RouteState{"unknown": RouteUnknown, "ok": RouteOK, "no-leader": RouteNoLeader, "no-topic": RouteNoTopic,
	"denied": RouteDenied, "other-topic": RouteOtherTopic, "other-cluster": RouteOtherCluster}

var simpleWords = map[string]EventKind{"identity-durable": EvIdentityKept, "ack-durable": EvAckKept, "head-durable": EvHeadKept, "skipped": EvSkipped,
	"large": EvLarge, "adopt": EvAdopt}

func (s *script) do(words []string) error {
	a := args{words: map[string]string{}}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		a.words[key] = value
	}
	var first string
	if len(words) > 1 {
		first = words[1]
	}
	ev := Event{Base: -1, AppendTime: -1}
	if err := s.event(&ev, words[0], first, &a); err != nil {
		return err
	}
	if a.err != nil {
		return a.err
	}
	s.step(&ev)
	return nil
}

// event makes an event of a line: a word, the word behind it, and all behind
// the first as args.
func (s *script) event(ev *Event, word, first string, a *args) (err error) {
	kind, simple := simpleWords[word]
	switch {
	case simple:
		ev.Kind = kind
	case word == "start":
		s.lane = NewLane(uint64(a.int("head", 0)), uint64(a.int("top", 0)), a.acked("last"), a.identity())
		ev.Kind = EvTick
	case word == "offer":
		ev.Kind, ev.Identity, ev.InDoubt, ev.Large = EvOffer, a.identity(), a.has("doubt"), a.has("large")
		ev.Batch.MaxTime = s.now
		if a.has("future") {
			ev.Batch.MaxTime += 3_600_000
		}
		if a.has("old") {
			ev.Batch.MaxTime -= 3_600_000
		}
		_, err = fmt.Sscanf(first, "%d+%d", &ev.Batch.First, &ev.Batch.Count)
	case word == "route":
		state, known := routeWords[first]
		if !known {
			return fmt.Errorf("no route is called %q", first)
		}
		s.now++ // metadata that were asked for are newer than what made the lane ask
		ev.Kind = EvRoute
		ev.Route = Route{State: state, Leader: int32(a.int("leader", -1)), Epoch: int32(a.int("epoch", -1)), AskedAt: s.now - a.int("ms-ago", 0), Losses: uint64(a.int("losses", 0))}
	case word == "granted":
		ev.Kind, ev.Identity = EvGranted, a.identity()
	case word == "answer":
		var code int16
		code, err = codeOf(first)
		ev.Kind, ev.Verdict, ev.NotAppended, ev.Slow = EvAnswer, VerdictOf(code), NotPersisted(code), Slow(code)
		ev.Base, ev.AppendTime, ev.Named = a.int("base", -1), a.int("time", -1), a.has("named")
	case word == "cut":
		ev.Kind, ev.Dead, ev.Same, ev.Evened = EvCut, a.has("dead"), a.has("same"), a.has("evened")
		if a.has("step") {
			var d time.Duration
			d, err = time.ParseDuration(a.words["step"])
			ev.StepMs = d.Milliseconds()
		}
	case word == "lost":
		ev.Kind, ev.NotSent, ev.Slow, ev.ByID = EvUnanswered, a.has("not-sent"), a.has("slow"), a.has("by-id")
	case word == "wait":
		var d time.Duration
		d, err = time.ParseDuration(first)
		s.now += d.Milliseconds()
		ev.Kind = EvTick
	default:
		return s.finding(ev, word, first, a)
	}
	return err
}

// finding makes an event of the answer to a question.
func (s *script) finding(ev *Event, word, first string, a *args) (err error) {
	ev.Route.Epoch = int32(a.int("epoch", -1))
	switch word {
	case "epoch-end":
		ev.Kind, ev.Parted, ev.Epoch = EvEpochEnd, a.has("parted"), int32(a.int("of", 0))
		ev.Base, err = strconv.ParseInt(first, 10, 64)
	case "read-back":
		ev.Kind, ev.Found, ev.Absent = EvReadBack, a.has("found"), a.has("absent")
		ev.Base = a.int("found", -1)
	case "loss":
		ev.Kind, ev.Acked, ev.Found = EvLoss, a.acked("last"), a.has("found")
		ev.Lost, ev.Held, ev.Unsure = uint64(a.int("from", int64(s.lane.Head()))), uint64(a.int("held", 0)), uint64(a.int("unsure", 0))
	case "failed":
		ev.Kind, ev.Cause = EvQuestionFailed, CauseRetriable
		if s.lane.busy == busyCut {
			ev.Cause = CauseTooLarge
		}
	default:
		return fmt.Errorf("no event is called %q", word)
	}
	return err
}

func codeOf(name string) (int16, error) {
	for code := int16(-1); code < 200; code++ {
		var e *kerr.Error
		if code == 0 && name == "NONE" || errors.As(kerr.ErrorForCode(code), &e) && e.Message == name && e.Code == code {
			return code, nil
		}
	}
	return 0, fmt.Errorf("no Kafka error is called %q", name)
}

func (s *script) step(ev *Event) {
	ev.Now, ev.Rand = s.now, 1<<31
	s.lane.Step(ev, &s.actions)
	for _, a := range s.actions.All() {
		fmt.Fprintf(&s.out, "    %s\n", s.tell(a))
	}
	if c := s.lane.Cause(); c != s.cause {
		s.cause = c
		if c == CauseNone {
			fmt.Fprintf(&s.out, "    (goes on)\n")
		} else {
			fmt.Fprintf(&s.out, "    (waits: %s)\n", c)
		}
	}
}

func (b Batch) tell() string      { return fmt.Sprintf("%d+%d", b.First, b.Count) }
func (x AckedBatch) tell() string { return fmt.Sprintf("%s@%d/%d", x.Batch.tell(), x.Base, x.Epoch) }

func (i Identity) tell() string {
	if i.Epoch == 0 {
		return fmt.Sprintf("id %d", i.PID)
	}
	return fmt.Sprintf("id %d epoch %d", i.PID, i.Epoch)
}

var cutWords = [...]string{CutAhead: "larger than its topic takes", CutSize: "refused as too large", CutFault: "a record is refused", CutTimes: "times are refused"}

var reportWords = [...]string{ReportMaybeDoubled: "may be doubled", ReportNotDoubled: "are not doubled after all", ReportLost: "were lost by the broker and are not held",
	ReportHealed: "were lost by the broker and are sent again", ReportFound: "were found in the log", ReportNewIdentity: "new producer id",
	ReportShifted: "have another time than their own",
	ReportNotOurs: "answered for somebody else's batch", ReportUnverified: "the leader does not know the epoch of the last ack"}

func (s *script) tell(a Action) string {
	switch a.Kind {
	case ActRefresh:
		return "ask for metadata"
	case ActAskIdentity:
		if a.Identity.Partition < 0 {
			return fmt.Sprintf("choose a partition and ask for a producer id from %d on (%s)", a.Identity.From, a.Reason)
		}
		return fmt.Sprintf("ask for a producer id from %d on, partition %d (%s)", a.Identity.From, a.Identity.Partition, a.Reason)
	case ActPersistIdentity:
		return fmt.Sprintf("write identity: %s from %d on, partition %d (%s)", a.Identity.tell(), a.Identity.From, a.Identity.Partition, a.Reason)
	case ActAskEpochEnd:
		return fmt.Sprintf("ask broker %d in epoch %d for the end of epoch %d, for %s", a.Route.Leader, a.Route.Epoch, a.Acked.Epoch, a.Acked.tell())
	case ActReadBack:
		from := "where it begins"
		if a.Acked.Epoch >= 0 {
			from = fmt.Sprint("offset ", a.Acked.End)
		}
		return fmt.Sprintf("read back %s of %s from %s", a.Batch.tell(), a.Identity.tell(), from)
	case ActCut:
		id := "same identity"
		if a.Identity.PID >= 0 {
			id = fmt.Sprintf("%s from %d on", a.Identity.tell(), a.Identity.From)
		}
		return fmt.Sprintf("replace %s (%s): %s", a.Batch.tell(), cutWords[a.Cut], id)
	case ActFindLoss:
		return fmt.Sprintf("find the first lost batch, as of epoch %d", a.Route.Epoch)
	case ActSend:
		slow := ""
		if a.Slow {
			slow = " over the slow connection"
		}
		times := ""
		if a.Shift {
			times = fmt.Sprintf(", newest time %d ms ago", a.BackMs)
		}
		return fmt.Sprintf("send %s to broker %d: %s sequence %d%s%s", a.Batch.tell(), a.Route.Leader, a.Identity.tell(), a.Identity.Sequence(a.Batch.First), slow, times)
	case ActAck:
		return "write ack " + a.Acked.tell()
	case ActMoveHead:
		return fmt.Sprintf("write head %d, top %d, last ack %s", a.Index, a.Top, a.Acked.tell())
	case ActWake:
		return fmt.Sprintf("wake in %d ms", int64(a.Index)-s.now)
	case ActReport:
		why := ""
		if a.Reason != 0 {
			why = fmt.Sprintf(" (%s)", a.Reason)
		}
		return fmt.Sprintf("tell: %d+%d: %s%s", a.Index, a.Records, reportWords[a.Report], why)
	}
	return fmt.Sprintf("action %d", a.Kind)
}

// The list of transcripts names each of them, and nothing else, and so it is with the worlds of the model.
func TestTranscriptsAreListed(t *testing.T) {
	text, err := os.ReadFile("testdata/lane/README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed, worlds := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.Contains(cells[1], "---") || strings.TrimSpace(cells[1]) == "rule" {
			continue
		}
		for name := range strings.SplitSeq(cells[2], ",") {
			listed[strings.TrimSpace(name)] = true
		}
		in := strings.TrimSpace(cells[3])
		if why, none := strings.CutPrefix(in, "- ("); none && len(why) > 1 {
			continue
		}
		for name := range strings.SplitSeq(in, ";") {
			worlds[strings.TrimSpace(name)] = true
		}
	}
	for _, w := range modelWorlds {
		if !worlds[w.name] {
			t.Errorf("the world %q is in no row", w.name)
		}
		delete(worlds, w.name)
	}
	for name := range worlds {
		t.Errorf("there is no world %q", name)
	}
	files, err := filepath.Glob("testdata/lane/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txt")
		if !listed[name] {
			t.Errorf("%s is in no row", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("there is no transcript %q", name)
	}
}
