//go:build long

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"shipper/internal/kafkatest"
)

// Elections: unclean ones, which lose what was acked, and clean ones that nobody sees, which look like it.

// unclean is an election in which the only replica in sync dies with acked records that the one which takes over never got.
type unclean struct {
	seen     bool // the one that takes over knows our producer id; else it would take the next batch without a word
	lost     int  // lines that it never got
	refilled int  // records of others that it takes before the agent comes back
	maxBytes string
	spool    string
	writer   kafkatest.WriterOptions
}

// run has the election happen to both users, one after the other, and calls after when the agent meets it.
func (u unclean) run(t *testing.T, after func(t *testing.T, w *secured)) {
	const lines = 40
	c := cluster(t, map[string]string{"replica.lag.time.max.ms": "2000"})
	settings := map[string]string{"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
	ground{cluster: c, replicas: [][]int32{{0, 1}}, settings: settings, writer: u.writer}.asBoth(t, func(t *testing.T, w *secured) {
		w.maxBytes, w.spool = u.maxBytes, u.spool
		w.configure()
		w.agent.Start()
		if u.seen {
			w.writer.Write(lines)
			w.awaitAll()
		}
		w.cluster.ReplicaProxy(0).Cut() // the follower cannot fetch any more
		w.writer.Write(lines)
		w.cluster.WaitPartition(w.topic, 0, "the follower is out of sync", func(_ int32, isr []int32) bool { return len(isr) == 1 })
		for range 5 {
			w.writer.Write(u.lost / 5)
			time.Sleep(700 * time.Millisecond)
		}
		w.awaitAll()
		time.Sleep(2 * time.Second) // the acks are durable
		w.cluster.Broker(0).Kill()
		if u.refilled > 0 {
			w.cut()
		}
		w.cluster.ElectUnclean(w.topic, 0)
		w.cluster.ReplicaProxy(0).Heal()
		w.others(u.refilled)
		w.heal()
		w.writer.Write(lines)
		after(t, w)
	})
}

// others has somebody else write so many records to the topic.
func (w *secured) others(n int) {
	w.t.Helper()
	if n == 0 {
		return
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.checker()...), kgo.DefaultProduceTopic(w.topic))
	if err != nil {
		w.t.Fatal(err)
	}
	defer cl.Close()
	var records []*kgo.Record
	for i := range n {
		records = append(records, kgo.StringRecord(fmt.Sprintf("%s%d", ofOthers, i)))
	}
	if err := cl.ProduceSync(w.t.Context(), records...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

const ofOthers = "others' "

// wantProof waits for the line that says what became of a loss, which comes when the last of its acks is durable.
func (w *secured) wantProof() {
	w.t.Helper()
	w.agent.WaitLog("a loss at the brokers is settled", 60*time.Second)
}

// wantHealed wants all that was lost back, each line once.
func (w *secured) wantHealed() {
	w.t.Helper()
	w.checkSettled()
	if n := w.stats()["healed_records"]; n == 0 {
		w.t.Error("nothing was healed: acked records had vanished and should be back")
	}
	w.wantProof()
}

// Acked lines that the brokers lost are back, each once, in order; also when the old leader joins again.
func TestUncleanElectionHeals(t *testing.T) {
	unclean{seen: true, lost: 200}.run(t, func(t *testing.T, w *secured) {
		w.wantHealed()
		w.cluster.Broker(0).Start()
		w.cluster.Broker(0).WaitReady()
		w.writer.Write(40)
		w.checkSettled()
	})
}

func TestUncleanElectionToAStranger(t *testing.T) {
	unclean{lost: 200}.run(t, func(t *testing.T, w *secured) { w.wantHealed() })
}

// Others have made its log longer than ours was, when the agent sees it: no offset tells that anything is gone.
func TestUncleanElectionRefilled(t *testing.T) {
	unclean{lost: 200, refilled: 1_000}.run(t, func(t *testing.T, w *secured) {
		w.read.Within = deliverMax
		kafkatest.AwaitRecords(t, w.checker(), w.topic, 1_000+w.writer.Lines(), w.read)
		got, _ := kafkatest.ReadTopic(t, w.checker(), w.topic, w.read)
		ours := got[:0]
		for _, r := range got {
			if !strings.HasPrefix(string(r.Value), ofOthers) {
				ours = append(ours, r)
			}
		}
		if r := kafkatest.Check(w.lines(), ours); !r.OK() {
			t.Error(r.Err())
		}
		w.wantStat("healed_records", 240)
		w.wantStat("maybe_doubled_records", 0)
		w.wantStat("lost_records", 0)
		w.wantProof()
	})
}

// More was lost than the spool still holds: what is not back is named, and not a record more.
func TestUncleanElectionBeyondTheSpool(t *testing.T) {
	u := unclean{seen: true, lost: 40_000, maxBytes: "32MiB", spool: "  retain_acked: 1MiB\n", writer: kafkatest.WriterOptions{LineBytes: 1000}}
	u.run(t, func(t *testing.T, w *secured) {
		w.wantProof()
		lost := w.stats()["lost_records"]
		r := w.report(w.writer.Lines() - int64(lost))
		if r.Lost == 0 || float64(r.Lost) != lost || r.Lost > u.lost+40 || r.Doubled+r.Disorder+r.Foreign != 0 {
			t.Errorf("%v told as lost; %v", lost, r.Err())
		}
		if w.logLines("the brokers lost records that they had acknowledged, and the spool no longer holds them") == 0 {
			t.Error("no line of the log names what is lost")
		}
	})
}

// Metadata are asked for before a send when they are older than 10 s.
const metadataMax = 12 * time.Second

// unseenEpochs has the leader epoch of a topic's only partition rise under load without a change that a request would meet:
// the leader is what it was. Nothing is lost, and all acks since then look like it. most tells how many records an agent that
// may not look for them may count as possibly doubled.
func unseenEpochs(t *testing.T, rise func(w *secured, leader int32, rest []int32), most func(w *secured) int) {
	ground{partitions: 1, writer: kafkatest.WriterOptions{Files: 2, Rate: 500}}.asBoth(t, func(t *testing.T, w *secured) {
		w.agent.Start()
		w.writer.Start()
		w.agent.WaitLog("shipper runs", 20*time.Second)
		w.awaitStat("lines_acked", 1)
		leader, before := w.cluster.Leader(w.topic, 0), w.cluster.LeaderEpoch(w.topic, 0)
		rise(w, leader, []int32{(leader + 1) % 3, (leader + 2) % 3})
		if after := w.cluster.LeaderEpoch(w.topic, 0); after <= before || w.cluster.Leader(w.topic, 0) != leader {
			t.Fatalf("epoch %d, then %d: nothing is tested", before, after)
		}
		time.Sleep(metadataMax)
		w.writer.Stop()
		w.awaitAll()
		w.checkHonest(most(w))
	})
}

// The replicas change: the leader leads in the next epoch.
func TestUnseenReplicaChange(t *testing.T) {
	unseenEpochs(t, func(w *secured, leader int32, rest []int32) {
		w.cluster.Reassign(w.topic, 0, []int32{leader, rest[0]})
		time.Sleep(metadataMax)
		w.cluster.Reassign(w.topic, 0, []int32{leader, rest[0], rest[1]})
	}, func(*secured) int { return 0 })
}

// The leader goes away and comes back behind stalled connections, again and again, the last time right before the agent is
// killed. Somebody may have led in between and cut the log: who may not look sends all of it again.
func TestUnseenLeaderAwayAndBack(t *testing.T) {
	unseenEpochs(t, func(w *secured, leader int32, rest []int32) {
		for range 3 {
			for _, p := range w.proxies {
				p.Stall()
			}
			w.cluster.MoveLeader(w.topic, 0, rest[0])
			w.cluster.MoveLeader(w.topic, 0, leader)
			w.heal()
			time.Sleep(3 * time.Second)
		}
		w.killCounted()
	}, func(w *secured) int { return int(w.writer.Lines()) })
}
