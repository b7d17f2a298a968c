package kafka

import (
	"flag"
	"maps"
	"slices"
	"testing"
)

var laneWorlds = flag.String("lane.worlds", "small", "small: a few seconds of worlds; big: some minutes")

const worldStatesMax = 6_000_000

// known is what a world may show, beyond what people were told. Everything
// else that judge and stuck find fails the test.
type known []string

const (
	doubledSilently  = "doubled, not reported"
	disorderSilently = "out of order, not reported"
	lostSilently     = "lost silently"
	needless         = "reported or doubled without need"
	stuckForEver     = "stuck"
)

// Two elections, one of them unclean, between two looks at the metadata, and
// an expiry: the leader's log was cut and written on in epochs that nobody saw,
// and the broker forgot what would have told.
var unseen = known{doubledSilently, disorderSilently}

// modelWorlds are the worlds that the contract is read from. doubledMax is the
// most copies too many, all of them reported.
var modelWorlds = []struct {
	rules
	big        bool
	doubledMax int
	known      known
}{
	// What happens every week: nothing is doubled, and nobody is told a thing.
	{rules: rules{name: "crashes, losses and a clean election", batches: 3, retain: 3, young: true, lossless: true, left: budget{crash: 2, drop: 1, restart: 1, move: 1}}},
	{rules: rules{name: "more of the same", batches: 4, retain: 4, young: true, lossless: true, left: budget{crash: 3, drop: 2, restart: 1, move: 1}}, big: true},
	{rules: rules{name: "two clean elections seen in time", batches: 4, retain: 4, young: true, left: budget{crash: 2, drop: 2, restart: 1, move: 2}}, big: true},
	{rules: rules{name: "no leader for a while", batches: 3, retain: 3, lossless: true, left: budget{crash: 1, drop: 1, blind: 2}}},

	// A clean election that nobody sees until a leader refuses.
	{rules: rules{name: "clean election", batches: 3, retain: 3, left: budget{crash: 1, drop: 1, zombie: 1, restart: 1, move: 1}}},
	{rules: rules{name: "two clean elections unseen", batches: 3, retain: 3, left: budget{crash: 1, drop: 1, move: 2}}, doubledMax: 1},
	{rules: rules{name: "two clean elections unseen, big", batches: 4, retain: 4, left: budget{crash: 1, drop: 1, zombie: 1, restart: 1, move: 2}}, big: true, doubledMax: 3},
	{rules: rules{name: "leaders forget, and refuse then, READ", batches: 3, retain: 3, old: true, refuse: true, read: true, lossless: true, left: budget{crash: 1, drop: 2, expire: 1}}},

	// An epoch that rises unseen while the leader stays.
	{rules: rules{name: "the leader's epoch rises", batches: 4, retain: 4, lossless: true, left: budget{drop: 2, rise: 1}}},
	{rules: rules{name: "the leader's epoch rises twice, crash", batches: 3, retain: 3, left: budget{crash: 1, drop: 1, rise: 2}}, doubledMax: 1},
	{rules: rules{name: "the leader's epoch rises, unclean election", batches: 3, retain: 3, knows: true, left: budget{drop: 1, rise: 1, elect: 1}}, doubledMax: 1},
	{rules: rules{name: "the leader's epoch rises, unclean and clean election", batches: 3, retain: 3, knows: true, left: budget{drop: 1, rise: 1, elect: 1, move: 1}}, doubledMax: 3},
	{rules: rules{name: "the leader's epoch rises, unclean and clean election, big", batches: 3, retain: 3, knows: true, left: budget{crash: 1, drop: 1, rise: 1, elect: 1, move: 1}}, big: true, doubledMax: 5},

	{rules: rules{name: "the leader's epoch rises, and it crashes", batches: 3, retain: 3, knows: true, itself: true, left: budget{drop: 1, rise: 1, elect: 1}}, doubledMax: 3},
	{rules: rules{name: "the leader's epoch rises, and it crashes, big", batches: 3, retain: 3, knows: true, itself: true, left: budget{crash: 1, drop: 1, rise: 1, elect: 1}}, big: true, doubledMax: 4},

	// The broker loses acked batches.
	{rules: rules{name: "unclean election", batches: 3, retain: 3, left: budget{crash: 1, drop: 1, elect: 1}}},
	{rules: rules{name: "unclean election, late request", batches: 3, retain: 3, left: budget{drop: 1, zombie: 1, elect: 1}}},
	{rules: rules{name: "unclean election, leaders without memory refuse", batches: 3, retain: 3, refuse: true, left: budget{crash: 1, drop: 1, elect: 1}}},
	{rules: rules{name: "unclean election, one batch held", batches: 3, retain: 1, left: budget{crash: 1, drop: 1, elect: 1}}},
	{rules: rules{name: "unclean election, none held", batches: 3, retain: 0, left: budget{crash: 1, drop: 1, elect: 1}}},
	{rules: rules{name: "unclean election, big", batches: 4, retain: 4, left: budget{crash: 1, drop: 1, zombie: 1, restart: 1, elect: 1}}, big: true},
	{rules: rules{name: "unclean election, refuse, big", batches: 4, retain: 4, refuse: true, left: budget{crash: 1, drop: 1, zombie: 1, restart: 1, elect: 1}}, big: true},
	{rules: rules{name: "two unclean elections, small", batches: 2, retain: 2, left: budget{elect: 2}}, doubledMax: 1},
	{rules: rules{name: "two unclean elections", batches: 3, retain: 3, left: budget{crash: 1, drop: 1, elect: 2}}, big: true, doubledMax: 2},
	{rules: rules{name: "two unclean elections, 1 held", batches: 3, retain: 1, left: budget{crash: 1, drop: 1, elect: 2}}, big: true, doubledMax: 2},
	{rules: rules{name: "two unclean elections, none held", batches: 3, retain: 0, left: budget{crash: 1, drop: 1, elect: 2}}, big: true, doubledMax: 1},
	{rules: rules{name: "unclean and clean election", batches: 3, retain: 3, left: budget{crash: 1, elect: 1, move: 1}}, doubledMax: 2},
	{rules: rules{name: "unclean and clean election, 1 held", batches: 3, retain: 1, left: budget{crash: 1, elect: 1, move: 1}}, doubledMax: 2},
	{rules: rules{name: "unclean and clean election, big", batches: 4, retain: 4, left: budget{crash: 1, drop: 1, zombie: 1, elect: 1, move: 1}}, big: true, doubledMax: 3},

	// A leader of old comes back with records that nobody else has, so that its log is as long as ours was.
	{rules: rules{name: "unclean election of a log that parted", batches: 3, retain: 3, strays: true, left: budget{drop: 1, elect: 1, move: 1}}, doubledMax: 2},
	{rules: rules{name: "unclean election of a log that parted, none held", batches: 3, retain: 0, strays: true, left: budget{drop: 1, elect: 1, move: 1}}, doubledMax: 2},
	{rules: rules{name: "unclean election of a log that parted, READ", batches: 3, retain: 3, read: true, strays: true, left: budget{crash: 1, elect: 1, move: 1}}, doubledMax: 2},
	{rules: rules{name: "unclean election of a log that parted, crash", batches: 3, retain: 3, strays: true, left: budget{crash: 1, drop: 1, elect: 1, move: 1}}, doubledMax: 2},
	{rules: rules{name: "unclean election of a log that parted, crash, 1 held", batches: 3, retain: 1, strays: true, left: budget{crash: 1, drop: 1, elect: 1, move: 1}}, doubledMax: 2},

	// The broker forgets producers: records are old.
	{rules: rules{name: "expiry", batches: 3, retain: 3, old: true, left: budget{crash: 1, drop: 2, zombie: 1, expire: 1}}, doubledMax: 2},
	{rules: rules{name: "expiry, topic stamps append time", batches: 3, retain: 3, old: true, stamps: true, left: budget{crash: 1, drop: 2, zombie: 1, expire: 1}}, doubledMax: 2},
	{rules: rules{name: "expiry, READ", batches: 3, retain: 3, old: true, read: true, left: budget{crash: 1, drop: 2, zombie: 1, expire: 1}}, doubledMax: 1},
	{rules: rules{name: "expiry and unclean election", batches: 4, retain: 4, old: true, left: budget{crash: 1, drop: 1, zombie: 1, restart: 1, expire: 1, elect: 1}}, big: true, doubledMax: 2},
	{rules: rules{name: "expiry and unclean election, READ", batches: 3, retain: 3, old: true, read: true, left: budget{crash: 2, drop: 1, zombie: 1, restart: 1, expire: 1, elect: 1}}, big: true, doubledMax: 1},
	{rules: rules{name: "expiry, unclean and clean election, READ", batches: 4, retain: 4, old: true, read: true, left: budget{crash: 1, drop: 1, expire: 1, elect: 1, move: 1}}, big: true, doubledMax: 3, known: unseen},

	{rules: rules{name: "expiry and unclean election, others' records, READ", batches: 2, retain: 2, old: true, read: true, others: 1, left: budget{drop: 1, expire: 1, elect: 1}}},
	{rules: rules{name: "expiry and unclean election, others' records, READ, crash", batches: 2, retain: 2, old: true, read: true, others: 1, left: budget{crash: 1, drop: 1, expire: 1, elect: 1}}},
	{rules: rules{name: "expiry and two clean elections", batches: 3, retain: 3, old: true, read: true, left: budget{drop: 1, expire: 1, move: 2}}},
	{rules: rules{name: "expiry and two clean elections, big", batches: 3, retain: 3, old: true, left: budget{crash: 1, drop: 1, expire: 1, move: 2}}, big: true, doubledMax: 3},

	// A batch is larger than its topic takes, from the beginning or suddenly.
	{rules: rules{name: "too large", batches: 4, retain: 4, big: true, read: true, lossless: true, left: budget{crash: 2, drop: 1, restart: 1}}},
	{rules: rules{name: "too large, late request", batches: 4, retain: 4, big: true, left: budget{crash: 1, drop: 1, zombie: 1, restart: 1}}},
	{rules: rules{name: "too large, leaders without memory refuse", batches: 4, retain: 4, big: true, refuse: true, left: budget{crash: 1, drop: 1, zombie: 1}}},
	{rules: rules{name: "too large, known", batches: 4, retain: 4, big: true, read: true, lossless: true, left: budget{crash: 1, drop: 1, restart: 1, learn: 1}}},
	{rules: rules{name: "limit lowered, READ", batches: 4, retain: 4, big: true, read: true, left: budget{crash: 1, drop: 1, zombie: 1, lower: 1, learn: 1}}},
	{rules: rules{name: "limit lowered", batches: 3, retain: 3, big: true, left: budget{crash: 1, drop: 1, zombie: 1, lower: 1, restart: 1}}, doubledMax: 2},
	{rules: rules{name: "too large, unclean election", batches: 3, retain: 3, big: true, left: budget{crash: 1, drop: 1, elect: 1}}},
	{rules: rules{name: "limit lowered, unclean election", batches: 3, retain: 3, big: true, read: true, left: budget{crash: 1, elect: 1, lower: 1}}},
	{rules: rules{name: "too large, two elections", batches: 4, retain: 4, big: true, left: budget{crash: 1, drop: 1, elect: 1, move: 1}}, big: true, doubledMax: 4},
	{rules: rules{name: "limit lowered, expiry and unclean election, READ", batches: 4, retain: 4, big: true, old: true, read: true, left: budget{crash: 1, drop: 1, zombie: 1, expire: 1, elect: 1, lower: 1}}, big: true, doubledMax: 2},

	{rules: rules{name: "one record too large", batches: 4, retain: 4, big: true, dead: true, read: true, lossless: true, left: budget{crash: 2, drop: 1, restart: 1}}},
	{rules: rules{name: "one record too large, late request", batches: 4, retain: 4, big: true, dead: true, left: budget{crash: 1, drop: 1, zombie: 1, restart: 1, learn: 1}}},
	{rules: rules{name: "one record too large, unclean election", batches: 4, retain: 4, big: true, dead: true, left: budget{crash: 1, elect: 1}}},
	{rules: rules{name: "one record too large, unclean election, 1 held", batches: 4, retain: 1, big: true, dead: true, left: budget{crash: 1, elect: 1}}},
	{rules: rules{name: "one record too large, two elections", batches: 4, retain: 4, big: true, dead: true, left: budget{crash: 1, drop: 1, elect: 1, move: 1}}, big: true, doubledMax: 3},

	// The spool's disk lies: indexes are given again to other lines.
	{rules: rules{name: "disk forgets", batches: 3, retain: 3, left: budget{crash: 1, void: 1, drop: 1, zombie: 1}}},
}

func TestModel(t *testing.T) {
	for _, w := range modelWorlds {
		if w.big && *laneWorlds != "big" {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			m := &model{rules: w.rules}
			f := m.explore(worldStatesMax)
			t.Log(f)
			for _, what := range slices.Sorted(maps.Keys(f.bad)) {
				if !slices.Contains(w.known, what) {
					t.Errorf("%s, %d times, first:\n%s", what, f.bad[what], f.trace[what])
				}
			}
			if f.doubled > w.doubledMax {
				t.Errorf("%d copies too many, want at most %d", f.doubled, w.doubledMax)
			}
			if f.cut > 0 {
				t.Errorf("%d states were not followed: more ids, log or states are needed", f.cut)
			}
			if f.ends == 0 {
				t.Error("no world came to an end")
			}
		})
	}
}

func (x mutation) cut(w *world, id binding) {
	w.cut, w.soft = true, x == cutInMemory
	if id.pid >= 0 {
		w.addIdentity(id)
	}
}

func (x mutation) die(w *world) {
	if w.soft {
		w.cut, w.soft = false, false
		w.idCount--
		w.ids[w.idCount] = binding{}
	}
}

func (x mutation) moveHead(w *world) {
	head := w.head
	w.keepHead()
	switch {
	case x == moveInMemory:
		w.head, w.top = head, 0
	case x == topForgotten:
		w.top = 0
	case x == proofForgotten && w.last+1 < w.head:
		w.last, w.lastAck = nobody, ackOf{base: nobody}
	}
}

func (x mutation) ack(m *model, w *world, b int8, a ackOf) {
	if x != ackInMemory {
		m.keepAck(w, b, a)
		return
	}
	x.sync(m, w)
	w.dirty = a
}

func (x mutation) sync(m *model, w *world) {
	if w.dirty.base != nobody {
		m.keepAck(w, w.head, w.dirty)
		w.dirty = ackOf{base: nobody}
	}
}

func (x mutation) recover(m *model, w *world, id Identity, void bool) {
	if x != identityLives {
		w.endIdentity(id, void, m)
	}
}

func (x mutation) others(m *model, w *world, push visit) {
	if x == ackInMemory && w.dirty.base != nobody {
		t := *w
		x.sync(m, &t)
		push(&t, "sync", false)
	}
}
