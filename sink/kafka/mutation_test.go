package kafka

import "testing"

// mutation is a rule of lane, driver or recovery that is switched off: by
// changing events or lane fields around a step, which the exhaustive model and
// the simulation share, or by what each of them does with entries.
type mutation uint8

const (
	asItIs           mutation = iota
	ackEpochLate              // an ack counts under the epoch known when the answer came
	resendsFirst              // a batch in doubt goes again before a new leader epoch is checked
	neverChecked              // nobody asks a new leader for the end of an epoch
	staleRefusal              // a refusal by an old leader is believed
	regressionTaken           // a base offset below the last acked end is taken for an ack
	duplicateTaken            // a duplicate in answer to a first attempt is taken for an ack
	doubtForgotten            // an attempt without an answer leaves no doubt
	notLookedFor              // a doubt that is old is not looked for
	healNotLookedFor          // nor are the old batches that a heal sends again
	healFloorRises            // or only above what the heal sent already
	healTakenBack             // what a heal sent again is not doubled if it follows what the heal sent before
	sentForgotten             // numbers that were on the wire are given to other batches
	lateForgotten             // a topic is left as if no request could come late to the new one
	acksStillCount            // acks from a loss on still count against a leader
	cutInDoubt                // what is in doubt is cut without being looked for
	moveInMemory              // the head's step back is not durable
	ackInMemory               // the next batch goes before the ack is durable
	identityInMemory          // an identity is used before it is durable
	cutInMemory               // what replaces a batch, and its identity, is not durable
	identityLives             // a start ends no identity
	topForgotten              // a start does not know where a heal began
	proofForgotten            // a loss that is not held forgets the ack below it
	gapUnmarked               // no new identity behind a gap
	partedUnseen              // a leader without records of an epoch is believed to have them if its log is long enough
	refusedNotSought          // what may be there when a leader refuses is counted and not looked for
	unsureTrusted             // an ack that may be older than its epoch is lost for certain if the leader has nothing of that
	floorUnbound              // an identity's floor holds in every epoch
	lossUnseen                // the loss of an idle connection is not noticed
	neverStays                // a leader is never taken for one that stayed
	stayedAway                // a leader that is the same after any epochs is taken for one that stayed
	neverFresh                // a batch that cannot be forgotten yet is looked for, or counted
)

// before changes an event, or the lane before it.
func (x mutation) before(l *Lane, ev *Event) {
	switch {
	case x == ackEpochLate && ev.Kind == EvAnswer:
		l.flightEpoch = l.route.Epoch
	case x == resendsFirst && l.doubt, x == neverChecked:
		l.checked = true
		if ev.Kind == EvRoute { // a new leader asks for a new check
			l.route.Leader, l.route.Epoch = ev.Route.Leader, ev.Route.Epoch
		}
	case x == staleRefusal && ev.Kind == EvRoute && ev.Route.State == RouteOK:
		l.refusedEpoch = ev.Route.Epoch
	case x == regressionTaken && ev.Kind == EvAnswer && ev.Verdict == Acked && ev.Base < l.last.End:
		l.last.Epoch = -1
	case x == duplicateTaken && ev.Kind == EvAnswer && l.stamp == stampNone:
		l.stamp = stampBroker
	case x == unsureTrusted && ev.Kind == EvLoss:
		ev.Unsure = 0
	case x == refusedNotSought && l.sought && ev.Kind == EvReadBack:
		ev.Found, ev.Absent = false, false
	case x == partedUnseen && ev.Kind == EvEpochEnd:
		ev.Parted = false
	case x == neverStays:
		l.run = run{}
	case x == stayedAway && ev.Kind == EvEpochEnd:
		l.run = l.route.run()
	case x == neverFresh && l.doubt:
		l.doubtSince = min(l.doubtSince, ev.Now-freshMaxMs-1)
	case x == cutInDoubt && ev.Kind == EvAnswer && ev.Verdict == TooLarge:
		l.tries = 1
	}
}

// after changes what a step left.
func (x mutation) after(l, before *Lane, ev *Event) {
	switch {
	case x == acksStillCount && ev.Kind == EvLoss:
		l.last = before.last
	case x == doubtForgotten && ev.Kind == EvUnanswered:
		l.forgetDoubt()
	case x == notLookedFor && l.doubt && l.head >= l.top, x == healNotLookedFor && l.doubt && l.head < l.top:
		l.asked = true
	case x == healTakenBack && l.head < l.top:
		l.unbroken = true
	case x == sentForgotten:
		l.sentTo = 0
	case x == lateForgotten:
		l.unheard = false
	case x == gapUnmarked && l.needID == ReasonGap:
		l.needID = 0
	}
}

// Each rule is needed: without it a prover finds what it is for. Rules about
// elections that nobody sees, or that come in the middle of a heal, are for the
// model: it walks all of them, while a random world has one in a hundred thousand,
// or none. Rules of which
// a prover does not find the lack are listed with the reason.
func TestEveryRuleIsNeeded(t *testing.T) {
	simWorldsMax := *simSearch
	for _, c := range []struct {
		off       mutation
		rule      string
		model     rules  // a world in which the model finds it; no batches: it cannot, or need not
		want      string // the violation; none: more doubles
		sim       string // the kind of world in which the simulation finds it; empty: it does not
		seed      uint64 // from which on it is looked for
		redundant string // nobody finds it, since
	}{
		{off: ackEpochLate, rule: "an ack counts under the epoch known when its request left", want: lostSilently, model: rules{batches: 3, retain: 3, left: budget{elect: 1}}},
		{off: resendsFirst, rule: "a new leader is asked before resends too", want: lostSilently, model: rules{batches: 3, retain: 3, left: budget{drop: 1, elect: 1}}, sim: "brokers lose what they acked"},
		{off: neverChecked, rule: "a new leader is asked how far the last ack's epoch reaches", want: lostSilently, model: rules{batches: 3, retain: 3, left: budget{elect: 1}}, sim: "brokers lose what they acked"},
		{off: staleRefusal, rule: "a refusal counts only while its leader leads", redundant: "the question for a loss goes to the new leader then, and is answered as of its epoch: the rule spares the question"},
		{off: regressionTaken, rule: "an offset below the last acked end is no ack", want: lostSilently, model: rules{batches: 3, retain: 0, left: budget{elect: 1, move: 1}}},
		{off: duplicateTaken, rule: "a first attempt cannot be a duplicate", sim: "another producer has our id"},
		{off: doubtForgotten, rule: "possibly persisted is sticky", sim: "records are old", seed: 8680},
		{off: notLookedFor, rule: "an old doubt is looked for, or counted", want: doubledSilently, model: rules{batches: 3, retain: 3, old: true, left: budget{drop: 1, expire: 1}}, sim: "records are old"},
		{off: healNotLookedFor, rule: "what a heal sends again is looked for if it is old", want: doubledSilently, model: rules{batches: 3, retain: 3, old: true, read: true, left: budget{drop: 1, move: 2, expire: 1}}, sim: "records are old", seed: 267830},
		{off: healFloorRises, rule: "from where its identity began", want: doubledSilently, model: rules{batches: 3, retain: 3, old: true, left: budget{drop: 1, move: 2, expire: 1}}},
		{off: healTakenBack, rule: "a heal may be for nothing, and all it appends in a row", want: doubledSilently, model: rules{batches: 4, retain: 4, old: true, left: budget{drop: 1, move: 2, expire: 1}}},
		{off: sentForgotten, rule: "numbers on the wire are never given to other batches", sim: "everything"},
		{off: lateForgotten, rule: "a late request may reach the new topic of the name", sim: "topic recreated, log retired", seed: 99960},
		{off: acksStillCount, rule: "acks from a loss on do not count", model: rules{batches: 3, retain: 3, left: budget{elect: 1}}},
		{off: cutInDoubt, rule: "a doubt is resolved before a cut", want: doubledSilently, model: rules{batches: 3, retain: 3, big: true, read: true, left: budget{drop: 1, lower: 1}}, sim: "batches are too large", seed: 23840},
		{off: moveInMemory, rule: "the step back is durable", want: lostSilently, model: rules{batches: 3, retain: 3, left: budget{crash: 1, elect: 1}}},
		{off: ackInMemory, rule: "the next batch waits for the durable ack", want: doubledSilently, model: rules{batches: 3, retain: 3, left: budget{crash: 1}}, sim: "every week"},
		{off: identityInMemory, rule: "an identity is durable before it is used", sim: "every week"},
		{off: cutInMemory, rule: "a cut is durable", want: doubledSilently, model: rules{batches: 3, retain: 3, big: true, read: true, left: budget{crash: 1}}, sim: "batches are too large"},
		{off: identityLives, rule: "a start ends every identity", want: lostSilently, model: rules{batches: 3, retain: 3, left: budget{void: 1}}, sim: "the spool is damaged"},
		{off: topForgotten, rule: "where a heal began is durable", want: doubledSilently, model: rules{batches: 2, retain: 2, left: budget{crash: 1, elect: 1, move: 1}}},
		{off: proofForgotten, rule: "the ack below a loss stays", want: lostSilently, model: rules{batches: 2, retain: 0, left: budget{crash: 1, elect: 2}}},
		{off: partedUnseen, rule: "a leader without records of an epoch has none of ours", want: lostSilently, model: rules{batches: 3, retain: 3, read: true, strays: true, left: budget{elect: 1, move: 1}}},
		{off: refusedNotSought, rule: "a batch that a leader refuses is looked for before it gets another identity", want: needless, model: rules{batches: 3, retain: 3, old: true, refuse: true, read: true, lossless: true, left: budget{drop: 1, expire: 1}}},
		{off: unsureTrusted, rule: "an ack that may be older than its epoch is looked for, or counted, before it is sent again", want: doubledSilently, model: rules{batches: 2, retain: 2, strays: true, left: budget{crash: 1, drop: 1, elect: 1, move: 1}}},
		{off: floorUnbound, rule: "an identity's floor is of a leader epoch", want: doubledSilently, model: rules{batches: 2, retain: 2, old: true, read: true, others: 1, left: budget{drop: 1, expire: 1, elect: 1}}},
		{off: lossUnseen, rule: "a lost connection calls for metadata before anything is sent", sim: "every week"},
		{off: neverStays, rule: "a leader whose epoch is the next one has lost nothing", want: needless, model: rules{batches: 3, retain: 3, lossless: true, left: budget{rise: 1}}, sim: "a leader's epoch rises"},
		{off: stayedAway, rule: "a leader that led in between another's epochs may have lost what it acked", want: lostSilently, model: rules{batches: 3, retain: 3, left: budget{elect: 1, move: 1}}},
		{off: neverFresh, rule: "what is fresh is neither looked for nor counted", sim: "every week"},
		{off: gapUnmarked, rule: "a new identity behind a gap", redundant: "sequences that jump are refused by a broker that remembers, and one that does not takes any: the new identity spares a refusal"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			found := false
			if c.model.batches > 0 {
				found = true
				modelFinds(t, c.off, c.model, c.want)
			}
			if c.sim != "" {
				found = true
				seed, failure := simFinds(c.off, c.sim, c.seed, simWorldsMax)
				if failure == "" {
					t.Errorf("the simulation does not miss it in %d worlds of %q", simWorldsMax, c.sim)
				}
				t.Logf("simulation, seed %d: %s", seed, failure)
			}
			if !found {
				t.Log("redundant: ", c.redundant)
				if _, failure := simFinds(c.off, "", 0, simWorldsMax/20); failure != "" || c.redundant == "" {
					t.Errorf("said to be redundant, but: %s", failure)
				}
			}
		})
	}
}

// modelFinds switches a rule off in a world, and on again.
func modelFinds(t *testing.T, x mutation, r rules, want string) {
	off := model{rules: r, until: want}
	off.mutate = x
	without := off.explore(worldStatesMax)
	on := model{rules: r}
	with := on.explore(worldStatesMax)
	t.Logf("model, without the rule: %s", without)
	t.Logf("model, with it: %s", with)
	if len(with.bad) > 0 {
		t.Error("with the rule there are violations")
	}
	if want != "" && without.bad[want] == 0 {
		t.Errorf("without the rule nothing was %s", want)
	}
	if want == "" && without.doubled <= with.doubled {
		t.Errorf("without the rule no more was doubled")
	}
}

// simFinds lives worlds of a kind, or of all, until a rule is missed.
func simFinds(x mutation, kind string, from uint64, worldsMax int) (seed uint64, failure string) {
	seed = from
	for lived := 0; lived < worldsMax; seed++ {
		if simKind(seed) != kind && kind != "" {
			continue
		}
		lived++
		if w := simLive(seed, x, false); w.failure != "" {
			return seed, w.failure
		}
	}
	return seed, ""
}
