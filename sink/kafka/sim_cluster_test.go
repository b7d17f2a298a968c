package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// The cluster: brokers, a topic, and for each partition a leader, an epoch and
// replicas. The controller decides at once; a broker hears of it later, and goes
// on until then as it was told before. A follower takes from a leader of its own
// epoch what it lacks; what all replicas in sync have is committed.
type simCluster struct {
	brokers    []simBroker
	partitions []*simPartition
	id         [16]byte // of the topic; zero: brokers do not tell
	number     byte     // of its creations
	size       int      // partitions that it is created with
	replaced   int      // times that another cluster took its place
	exists     bool
	denied     bool // WRITE is revoked
	ids        int64
	old        []*simPartition // of topics that were deleted
	elections  int
	unclean    int
	forgotten  int // times that a replica forgot a producer before its time
	unseen     int // batches appended in another epoch than the agent knew
}

type simBroker struct {
	up     bool
	frozen bool
	thawed []func() // what reached it while it was frozen

	linked bool   // the agent has a connection to it
	losses uint64 // of such connections
	known  uint64 // of these, when the agent's metadata were asked for

	requests []*simRequest // that it took; some are answered
}

// cut ends the agent's connection.
func (b *simBroker) cut() {
	if b.linked {
		b.linked, b.losses = false, b.losses+1
	}
}

func (b *simBroker) alive() bool { return b.up && !b.frozen }

type simPartition struct {
	n        int32
	leader   int32 // -1: none
	epoch    int32
	inSync   []bool // by broker
	replicas []*simReplica
	raised   int32 // epoch whose leader is the one of the epoch before
	gone     bool  // its topic was deleted
	retired  []simCell
}

// simReplica is one broker's copy, and what that broker believes.
type simReplica struct {
	broker    int32
	log       []simCell
	start     int64 // retention removed all below
	end       int64
	high      int64 // what it knows to be committed
	producers []simProducer
	fetched   int32 // epoch of the leader that it last took from: only that one knows its end
	leader    int32 // as it was told
	epoch     int32
	leads     int64 // offset from which its own epoch runs
	waiting   []*simPending
	paused    bool // does not fetch
}

func (c *simCluster) partition(n int32) *simPartition {
	if !c.exists || n < 0 || int(n) >= len(c.partitions) {
		return nil
	}
	return c.partitions[n]
}

func (p *simPartition) lead() *simReplica {
	if p.leader < 0 {
		return nil
	}
	return p.replicas[p.leader]
}

// settled says that all replicas are the same and everybody knows who leads.
func (c *simCluster) settled() bool {
	if !c.exists || c.denied {
		return false
	}
	for _, p := range c.partitions {
		l := p.lead()
		if l == nil {
			return false
		}
		for _, r := range p.replicas {
			if !c.brokers[r.broker].alive() || r.epoch != p.epoch || r.end != l.end || !p.inSync[r.broker] {
				return false
			}
		}
		if l.high != l.end || len(l.waiting) > 0 {
			return false
		}
	}
	return true
}

func (w *simWorld) build() {
	c := &w.cluster
	c.brokers = make([]simBroker, w.brokers)
	for i := range c.brokers {
		c.brokers[i].up = true
	}
	c.size = w.partitions
	w.createTopic()
	for _, p := range c.partitions {
		for _, r := range p.replicas {
			w.hear(p, r)
		}
	}
	for i := range w.lanes {
		w.spool.lanes = append(w.spool.lanes, simLane{info: LaneInfo{ID: uint32(i), Block: "b", Topic: "t", Slot: uint32(i)}})
	}
	w.oracle.lanes = make([]simTold, w.lanes)
}

func (w *simWorld) createTopic() {
	c := &w.cluster
	c.number++
	if w.version >= kafka28 {
		c.id = [16]byte{c.number}
	}
	c.exists, c.partitions = true, nil
	for n := range c.size {
		p := &simPartition{n: int32(n), leader: int32(w.rng.IntN(w.brokers)), inSync: make([]bool, w.brokers)}
		for b := range w.brokers {
			p.replicas = append(p.replicas, &simReplica{broker: int32(b), leader: -1, epoch: -1, fetched: -1})
			p.inSync[b] = c.brokers[b].up
		}
		p.inSync[p.leader] = true
		c.partitions = append(c.partitions, p)
		w.elect(p)
	}
}

// announce has every broker that can hear learn who leads, each at its time.
func (w *simWorld) announce(p *simPartition) {
	for _, r := range p.replicas {
		w.after(w.between(0, 400), func() { w.hear(p, r) })
	}
}

// hear has a broker take over what the controller decided.
func (w *simWorld) hear(p *simPartition, r *simReplica) {
	if p.gone || !w.cluster.brokers[r.broker].alive() || r.epoch == p.epoch && r.leader == p.leader {
		return
	}
	if r.leader == r.broker {
		r.stopLeading(w, codeNotLeader)
	}
	r.leader, r.epoch = p.leader, p.epoch
	if r.leader == r.broker {
		r.leads = r.end
		p.retired = slices.DeleteFunc(p.retired, func(x simCell) bool { return x.next() > r.end }) // it was removed, and is lost
		w.tell("broker %d leads %d in epoch %d from offset %d", r.broker, p.n, r.epoch, r.end)
		w.commit(p, r)
		for _, f := range p.replicas {
			w.fetchLater(p, f)
		}
	} else {
		w.fetchLater(p, r)
	}
}

func (r *simReplica) stopLeading(w *simWorld, code int16) {
	for _, x := range r.waiting {
		x.answer(w, code, x.base)
	}
	r.waiting = nil
}

func (w *simWorld) fetchLater(p *simPartition, f *simReplica) {
	w.after(w.between(1, 12), func() { w.fetch(p, f) })
}

// fetch brings a follower up to its leader, if both are of one epoch.
func (w *simWorld) fetch(p *simPartition, f *simReplica) {
	c := &w.cluster
	if p.gone || f.leader < 0 || f.leader == f.broker || f.paused || !c.brokers[f.broker].alive() || !c.brokers[f.leader].alive() {
		return
	}
	l := p.replicas[f.leader]
	if l.leader != l.broker || l.epoch != f.epoch {
		return
	}
	if n := f.common(l); n < len(f.log) {
		w.tell("broker %d cuts %d from %d to %d batches", f.broker, p.n, len(f.log), n)
		f.truncate(w, n)
	}
	f.retain(l.start)
	if len(f.log) == 0 {
		f.start, f.end = l.start, l.start
	}
	for i := range l.log {
		if x := l.log[i]; x.base >= f.end {
			f.log, f.end = append(f.log, x), x.next()
			f.note(w, &x)
		}
	}
	f.high, f.fetched = min(l.high, f.end), l.epoch
	if l.epoch == p.epoch && f.end >= l.high && !p.inSync[f.broker] {
		p.inSync[f.broker] = true
	}
	w.commit(p, l)
}

// common is how many batches of f are those of l.
func (f *simReplica) common(l *simReplica) int {
	if n := len(f.log); n > 0 && l.has(&f.log[n-1]) {
		return n // whoever has a batch has what its leader had below it
	}
	for i := range f.log {
		x := &f.log[i]
		if x.base < l.start {
			continue
		}
		if !l.has(x) {
			return i
		}
	}
	return len(f.log)
}

func (r *simReplica) has(x *simCell) bool {
	i, found := slices.BinarySearchFunc(r.log, x.base, func(c simCell, base int64) int { return int(c.base - base) })
	return found && r.log[i].serial == x.serial
}

// commit moves the leader's high watermark, and answers who waited for it.
func (w *simWorld) commit(p *simPartition, l *simReplica) {
	if l.epoch != p.epoch {
		return // nobody in sync fetches from it
	}
	high := l.end
	for _, r := range p.replicas {
		switch {
		case r == l || !p.inSync[r.broker]:
		case r.fetched != l.epoch:
			return // its leader does not know yet what it has
		default:
			high = min(high, r.end)
		}
	}
	if high <= l.high {
		return
	}
	for i := range l.log {
		if x := &l.log[i]; x.base >= l.high && x.next() <= high {
			w.oracle.committed(x)
		}
	}
	l.high = high
	left := l.waiting[:0]
	for _, x := range l.waiting {
		switch {
		case x.need > high:
			left = append(left, x)
		case p.inSyncs() < w.minInSync:
			x.answer(w, codeTooFewAfter, x.base)
		default:
			x.answer(w, 0, x.base)
		}
	}
	l.waiting = left
}

func (p *simPartition) followers() uint64 {
	var set []int32
	for b, in := range p.inSync {
		if in {
			set = append(set, int32(b))
		}
	}
	return followers(p.leader, set)
}

func (p *simPartition) inSyncs() (n int) {
	for _, in := range p.inSync {
		if in {
			n++
		}
	}
	return n
}

// elect chooses a leader among the replicas in sync, if the one there is does
// not live.
func (w *simWorld) elect(p *simPartition) {
	c := &w.cluster
	if p.gone || p.leader >= 0 && c.brokers[p.leader].alive() {
		return
	}
	var able []int32
	for _, r := range p.replicas {
		if p.inSync[r.broker] && c.brokers[r.broker].alive() {
			able = append(able, r.broker)
		}
	}
	if len(able) == 0 {
		if p.leader >= 0 {
			p.leader, p.epoch = -1, p.epoch+1
			w.announce(p)
		}
		return
	}
	w.leadBy(p, able[w.rng.IntN(len(able))])
}

func (w *simWorld) leadBy(p *simPartition, broker int32) {
	if p.leader == broker {
		return
	}
	w.cluster.elections++
	p.leader, p.epoch = broker, p.epoch+1
	w.tell("the controller: broker %d leads %d in epoch %d", broker, p.n, p.epoch)
	w.announce(p)
}

// fence takes a dead broker out of the replicas in sync, but for the last.
func (w *simWorld) fence(b int32) {
	if w.cluster.brokers[b].alive() {
		return
	}
	for _, p := range w.cluster.partitions {
		if p.inSync[b] && p.inSyncs() > 1 {
			p.inSync[b] = false
		}
		w.elect(p)
		if l := p.lead(); l != nil {
			w.commit(p, l)
		}
	}
}

var errSimNet = errors.New("connection lost")

// transport is what the agent sees of the cluster besides produce requests.
func (c *simCluster) transport(w *simWorld) Transport {
	return Transport{
		Metadata: func(context.Context, []string) (Metadata, error) { return w.metadata() },
		InitProducerID: func(context.Context) (int64, int16, int16, error) {
			if w.unreachable(w.someBroker()) {
				return -1, -1, 0, errSimNet
			}
			if w.chance(30) {
				return -1, -1, kerr.CoordinatorLoadInProgress.Code, nil
			}
			c.ids++
			return c.ids, 0, 0, nil
		},
		EndOfEpoch: func(_ context.Context, broker int32, _ string, partition, epoch, current int32) (int64, int32, int16, error) {
			r, code, err := w.leaderAt(broker, partition, current)
			if err != nil || code != 0 {
				return -1, -1, code, err
			}
			end, is := r.endOf(epoch)
			return end, is, 0, nil
		},
		TopicConfig: func(context.Context, string) (TopicConfig, int16, error) {
			if !w.read || w.unreachable(w.someBroker()) {
				return TopicConfig{}, kerr.TopicAuthorizationFailed.Code, nil
			}
			return TopicConfig{Known: true, BatchBytesMax: w.bytesMax, BeforeMs: w.beforeMs, AfterMs: w.afterMs}, 0, nil
		},
		EndOffset: func(_ context.Context, broker int32, _ string, partition, current int32) (int64, int16, error) {
			r, code, err := w.leaderAt(broker, partition, current)
			if err != nil || code != 0 {
				return -1, code, err
			}
			return r.high, 0, nil
		},
		ReadBack: func(_ context.Context, q ReadBackQuery) (ReadBackResult, error) {
			res, err := w.readBack(&q)
			if err == nil && res.State == Inconclusive {
				w.oracle.blind++
			}
			return res, err
		},
		Losses: func(broker int32) uint64 {
			if w.off == lossUnseen {
				return 0
			}
			return c.brokers[broker].losses
		},
		Ping: func(_ context.Context, broker int32, _ uint8) error {
			if w.unreachable(broker) {
				return errSimNet
			}
			return nil
		},
		Produce: func(int32, uint8, *ProduceRequest, []PartOutcome) ([]PartOutcome, error) {
			panic("BUG: a simulated sender sends")
		},
	}
}

func (w *simWorld) someBroker() int32 { return int32(w.rng.IntN(w.brokers)) }

func (w *simWorld) unreachable(b int32) bool {
	return b < 0 || !w.cluster.brokers[b].alive() || w.now < w.lossyTo && w.chance(3)
}

// metadata are what one broker believes.
func (w *simWorld) metadata() (Metadata, error) {
	c := &w.cluster
	b := w.someBroker()
	for try := 0; w.unreachable(b); try++ {
		if try == 3 {
			return Metadata{}, errSimNet
		}
		b = w.someBroker()
	}
	for i := range c.brokers {
		c.brokers[i].known = c.brokers[i].losses
	}
	m := Metadata{ClusterID: fmt.Sprint("c", c.replaced), Topics: []TopicMeta{{Name: "t", ID: c.id}}}
	t := &m.Topics[0]
	if !c.exists {
		t.ID, t.Code = [16]byte{}, codeUnknownTopic
		return m, nil
	}
	for _, p := range c.partitions {
		r := p.replicas[b]
		t.Partitions = append(t.Partitions, PartitionMeta{Partition: p.n, Leader: r.leader, LeaderEpoch: r.epoch, Followers: p.followers()})
	}
	return m, nil
}

// leaderAt is the replica at broker, if that leads in the epoch the agent knows.
func (w *simWorld) leaderAt(broker, partition, current int32) (*simReplica, int16, error) {
	if w.unreachable(broker) {
		return nil, 0, errSimNet
	}
	w.cluster.brokers[broker].linked = true
	p := w.cluster.partition(partition)
	switch {
	case p == nil:
		return nil, codeUnknownTopic, nil
	case p.replicas[broker].leader != broker:
		return nil, codeNotLeader, nil
	case p.replicas[broker].epoch > current:
		return nil, kerr.FencedLeaderEpoch.Code, nil
	case p.replicas[broker].epoch < current:
		return nil, kerr.UnknownLeaderEpoch.Code, nil
	}
	return p.replicas[broker], 0, nil
}

// endOf is OffsetForLeaderEpoch: LeaderEpochFileCache.endOffsetFor.
func (r *simReplica) endOf(epoch int32) (end int64, is int32) {
	if epoch == r.epoch {
		return r.end, epoch
	}
	if epoch > r.epoch {
		return -1, -1
	}
	is, end = -1, r.leads
	for i := range r.log {
		if x := &r.log[i]; x.leaderEpoch > epoch {
			end = min(end, x.base)
			break
		} else {
			is = x.leaderEpoch
		}
	}
	if is < 0 {
		is = epoch
	}
	return end, is
}

// readBack is Client.ReadBack on the log as it is now.
func (w *simWorld) readBack(q *ReadBackQuery) (ReadBackResult, error) {
	none := ReadBackResult{BaseOffset: -1}
	r, code, err := w.leaderAt(q.Broker, q.Partition, q.CurrentEpoch)
	switch {
	case err != nil:
		return none, err
	case code != 0:
		none.Code, none.Reason = code, "refused"
		return none, nil
	case r.end < q.Floor:
		none.Reason = "the log ends below"
		return none, nil
	case r.end == q.Floor:
		none.State, none.Upto = Absent, r.end
		return none, nil
	case !w.read:
		none.Code, none.Reason = kerr.TopicAuthorizationFailed.Code, "READ"
		return none, nil
	case r.start > q.Floor:
		none.Reason = "the log starts above"
		return none, nil
	}
	for i := range r.log {
		if x := &r.log[i]; x.next() > q.Floor && x.pid == q.ProducerID && x.epoch == q.Epoch && x.first == q.BaseSequence {
			if x.next() > r.high {
				return none, nil
			}
			return ReadBackResult{State: Found, BaseOffset: x.base, Count: x.count}, nil
		}
	}
	if r.high < r.end {
		none.Reason = "not replicated"
		return none, nil
	}
	none.State, none.Upto = Absent, r.end
	return none, nil
}

func (x *simCell) String() string {
	if x.lane < 0 {
		return fmt.Sprintf("%d: another's", x.base)
	}
	return fmt.Sprintf("%d+%d: lane %d lines %d, id %d/%d %d, epoch %d", x.base, x.count, x.lane, x.line, x.pid, x.epoch, x.first, x.leaderEpoch)
}
