package kafka

import "math/rand/v2"

// simRules is what does not change while a world lives.
type simRules struct {
	seed       uint64
	name       string
	lanes      int
	partitions int
	brokers    int
	minInSync  int
	version    simVersion
	lines      uint64 // of each lane
	batchMax   int    // lines
	retain     int    // acked batches of a lane that the spool holds
	read       bool   // READ is granted
	stamps     bool   // the topic stamps append time
	ageMs      int64  // of a record when it is spooled
	bytesMax   int    // of a batch; 0: any
	dead       bool   // some lines are too large alone
	beforeMs   int64  // how old a record may be; 0: any age
	afterMs    int64  // how far ahead of the brokers' clock; 0: any
	refsMax    int    // places of batches that the sink may remember, of each lane; 0: all
	mergeBytes int    // what small batches are merged to; 0: they are not
	troubles   int    // at most
	menu       []simTrouble
	off        mutation
}

const (
	simBytesMax  = HeaderBytes + 50 // two lines, or three
	simDeadBytes = 60
)

func (r *simRules) deadLine(i uint64) bool { return r.dead && i%5 == 2 }

var (
	simWeekly = []simTrouble{agentDies, brokerDies, brokerStops, netLoses, leaderMoves, brokerFreezes, followerLags, writeDenied}
	simLosing = append([]simTrouble{uncleanElection, uncleanElection, brokerLosesPower}, simWeekly...)
)

// simKindOf is a kind of worlds.
type simKindOf struct {
	name string
	make func(r *simRules, rng *rand.Rand)
}

// simWorlds are the kinds of worlds; a seed chooses one and all its numbers.
var simWorlds = []simKindOf{
	{"one lane, crashes and lost requests", func(r *simRules, _ *rand.Rand) {
		r.lanes, r.partitions, r.brokers, r.lines, r.troubles = 1, 1, 1, 6, 3
		r.menu = []simTrouble{agentDies, netLoses}
	}},
	{"every week", func(r *simRules, _ *rand.Rand) { r.menu = simWeekly }},
	{"brokers lose what they acked", func(r *simRules, _ *rand.Rand) { r.menu = simLosing }},
	{"records are old", func(r *simRules, _ *rand.Rand) {
		r.ageMs = 2 * simExpireMs
		r.menu = append([]simTrouble{producersExpire, producersExpire, producersExpire, leaderMoves, brokerStops}, simWeekly...)
	}},
	{"batches are too large", func(r *simRules, rng *rand.Rand) {
		r.bytesMax, r.dead = simBytesMax, rng.IntN(2) == 0
		r.menu = simWeekly
		if rng.IntN(2) == 0 {
			r.bytesMax, r.menu = 0, append([]simTrouble{limitLowered, limitLowered, limitLowered}, simWeekly...)
		}
	}},
	{"topic recreated, log retired", func(r *simRules, _ *rand.Rand) {
		r.menu = append([]simTrouble{topicRecreated, topicRecreated, logRetired}, simWeekly...)
	}},
	{"cluster replaced", func(r *simRules, _ *rand.Rand) {
		r.menu = append([]simTrouble{clusterReplaced, clusterReplaced, topicRecreated}, simWeekly...)
	}},
	{"times are refused", func(r *simRules, rng *rand.Rand) {
		r.menu = simWeekly
		r.afterMs = simExpireMs
		if r.ageMs = -4 * simExpireMs; rng.IntN(2) == 0 {
			r.ageMs, r.beforeMs = 2*simExpireMs, simExpireMs
			r.menu = append([]simTrouble{producersExpire}, simWeekly...)
		}
	}},
	{"a long backlog", func(r *simRules, rng *rand.Rand) {
		r.lanes, r.lines, r.batchMax = 1+rng.IntN(2), 40+rng.Uint64N(20), 1
		r.menu = append([]simTrouble{writeDenied, writeDenied, uncleanElection}, simWeekly...)
		if rng.IntN(2) == 0 {
			r.refsMax = 2 + rng.IntN(6)
		} else {
			r.mergeBytes = 400
		}
	}},
	{"another producer has our id", func(r *simRules, _ *rand.Rand) {
		// Where the topic stamps append time, and in answer to a later attempt,
		// there is no sign of it.
		r.stamps, r.menu = false, []simTrouble{idUsedTwice}
	}},
	{"the spool is damaged", func(r *simRules, _ *rand.Rand) {
		r.menu = append([]simTrouble{frameRots, frameRots, diskLies, diskLies}, simWeekly...)
	}},
	// Without logRetired: what retention removes behind an unclean election
	// hides how far the log was cut, from us as from everybody.
	{"everything", func(r *simRules, rng *rand.Rand) {
		r.menu = append([]simTrouble{topicRecreated, clusterReplaced, frameRots, diskLies, producersExpire, limitLowered}, simLosing...)
		r.ageMs, r.dead = rng.Int64N(2)*2*simExpireMs, rng.IntN(2) == 0
		if rng.IntN(4) == 0 {
			r.beforeMs, r.afterMs = simExpireMs, simExpireMs
		}
		if rng.IntN(2) == 0 {
			r.refsMax = 2 + rng.IntN(6)
		}
		r.troubles = 12
	}},
}

// simRare are worlds that one seed in 60 has.
var simRare = simKindOf{"a leader's epoch rises", func(r *simRules, _ *rand.Rand) {
	// Nobody loses anything, so nobody must be told anything.
	r.read, r.menu = false, []simTrouble{epochRises, epochRises, epochRises, followerLags, writeDenied}
}}

func simWorldOf(seed uint64) *simKindOf {
	if seed%60 == 10 {
		return &simRare
	}
	return &simWorlds[seed%uint64(len(simWorlds))]
}

// simKind is the kind of world of a seed.
func simKind(seed uint64) string { return simWorldOf(seed).name }

// simRulesOf are the rules of a seed.
func simRulesOf(seed uint64) (simRules, *rand.Rand) {
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	r := simRules{seed: seed, lanes: 1 + rng.IntN(3), partitions: 1 + rng.IntN(2), brokers: 1 + rng.IntN(3), version: simVersion(rng.IntN(int(simVersions))),
		lines: 4 + rng.Uint64N(21), batchMax: 1 + rng.IntN(4), read: rng.IntN(2) == 0, stamps: rng.IntN(5) == 0, troubles: 6}
	r.retain = []int{64, 64, 2, 0}[rng.IntN(4)]
	kind := simWorldOf(seed)
	r.name = kind.name
	kind.make(&r, rng)
	r.minInSync = 1 + rng.IntN(min(2, r.brokers))
	return r, rng
}
