package kafka

// The broker of the model: one partition, its leader, and what the leader
// remembers of producers. Rules of Kafka 2.5 to 4.4 as brokers were seen to
// follow them: of each producer id the last five batches are recognised, one
// after a clean restart; a batch must follow the last; without a memory of the
// id any sequence is taken, or, in worlds that refuse, only the first.

type outcome int8

const (
	appended outcome = iota
	duplicate
	refused // out of order, unknown producer, an old epoch
	moved   // not the leader
	tooLarge
)

func (o outcome) String() string {
	return [...]string{"appended", "duplicate", "refused", "moved", "too large"}[o]
}

// cell is a record in the log. batch nobody: somebody else's. pe is its producer
// epoch; joint says that it came in one batch with its neighbour.
type cell struct {
	batch, id, epoch, version int8
	pe                        int8
	joint                     bool
}

// memory is what the leader knows of a producer id: its last epoch, the last
// record under that, and how many batches are recognised. last nobody: nothing.
type memory struct {
	last, window, epoch int8
	joint               bool // jointFirst and the one behind it were appended as one
}

// request is one batch on its way: count records from batch on.
type request struct{ batch, count, id, pe, from, to, version int8 }

const (
	windowMax = 5

	// jointFirst and the record behind it are one batch in worlds with a big one.
	jointFirst = 1

	// deadRecord is the record that is too large alone in worlds with one.
	deadRecord = jointFirst + 1
)

// remembers says that the batch is one of those that are recognised: the same
// first and last record.
func (p *memory) remembers(r request) bool {
	last := r.batch + r.count - 1
	if last > p.last || last >= jointFirst && r.batch <= jointFirst+1 && p.joint != (r.count > 1) {
		return false
	}
	between := p.last - last // in batches
	if p.joint && r.batch < jointFirst && p.last > jointFirst {
		between--
	}
	return between < p.window
}

// take notes a batch that is appended.
func (p *memory) take(last, pe int8, joint bool) {
	if p.last == nobody || p.epoch != pe {
		*p = memory{epoch: pe}
	}
	p.last, p.window, p.joint = last, min(p.window+1, windowMax), p.joint || joint
}

type broker struct {
	log           [modelLog]cell
	end           int8
	epoch, leader int8
	mem           [modelIDs]memory
	limited       bool // takes no batch of two records
}

func (m *model) execute(k *broker, r request) (outcome, int8) {
	if r.to != k.leader {
		return moved, nobody
	}
	if k.limited && (r.count > 1 || m.dead && r.batch == deadRecord) {
		return tooLarge, nobody // before anybody looks for a duplicate
	}
	p := &k.mem[r.id]
	switch {
	case p.last == nobody:
		if m.refuse && r.batch != r.from {
			return refused, nobody
		}
	case r.pe < p.epoch, r.pe > p.epoch && r.batch != r.from:
		return refused, nobody
	case r.pe > p.epoch:
	case p.remembers(r):
		for i := k.end - 1; i >= 0; i-- {
			if c := &k.log[i]; c.batch == r.batch && c.id == r.id && c.pe == r.pe {
				return duplicate, i
			}
		}
		panic("BUG: the broker remembers a batch that it does not have")
	case r.batch != p.last+1:
		return refused, nobody
	}
	at := k.end
	for i := range r.count {
		k.log[k.end] = cell{batch: r.batch + i, id: r.id, epoch: k.epoch, version: r.version, pe: r.pe, joint: r.count > 1}
		k.end++
	}
	p.take(k.end-at+r.batch-1, r.pe, r.count > 1)
	return appended, at
}

func (k *broker) clearLog() { k.truncate(0, true) }

// truncate leaves k records and the memory that they imply, or none.
func (k *broker) truncate(n int8, implied bool) {
	clear(k.log[n:])
	k.end = n
	k.forget()
	for _, c := range k.log[:n] {
		switch p := &k.mem[max(c.id, 0)]; {
		case !implied || c.batch == nobody:
		case c.joint && c.batch > jointFirst:
			p.last = c.batch
		default:
			p.take(c.batch, c.pe, c.joint)
		}
	}
}

// splits says that a log of n records would end inside a batch.
func (k *broker) splits(n int8) bool {
	return n > 0 && k.log[n-1].joint && k.log[n-1].batch == jointFirst
}

func (k *broker) forget() {
	for i := range k.mem {
		k.mem[i] = memory{last: nobody}
	}
}

func (k *broker) restart() {
	for i := range k.mem {
		k.mem[i].window = min(k.mem[i].window, 1)
	}
}

// lead makes the other broker the leader, in a new epoch.
func (k *broker) lead() { k.epoch, k.leader = k.epoch+1, 1-k.leader }

// fill has other producers write in an epoch until the log is n long.
func (k *broker) fill(n, epoch int8) {
	for ; k.end < n; k.end++ {
		k.log[k.end] = cell{batch: nobody, epoch: epoch}
	}
}

// endOf is OffsetForLeaderEpoch: where the first record of a later epoch is.
func (k *broker) endOf(epoch int8) epochEnd {
	is := int8(0)
	for i, c := range k.log[:k.end] {
		if c.epoch > epoch {
			return epochEnd{int64(i), int32(is), i > 0 && is < epoch}
		}
		is = c.epoch
	}
	return epochEnd{int64(k.end), int32(is), k.end > 0 && is < epoch && epoch < k.epoch}
}

// strays is the epoch of records that a replica may have behind the first n, which
// are all that it shares with the leader: it led in that epoch itself, and nobody
// got what it wrote last. nobody: none.
func (k *broker) strays(n int8) int8 {
	if n == 0 || n == k.end || k.log[n].epoch == k.log[n-1].epoch {
		return nobody
	}
	return k.log[n-1].epoch
}
