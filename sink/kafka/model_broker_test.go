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
	refused // out of order, unknown producer
	moved   // not the leader
)

func (o outcome) String() string {
	return [...]string{"appended", "duplicate", "refused", "moved"}[o]
}

type cell struct{ batch, id, epoch, version int8 } // batch nobody: somebody else's record

// memory is what the leader knows of a producer id.
type memory struct{ last, window int8 } // last nobody: nothing

type request struct{ batch, id, from, to, version int8 }

const windowMax = 5

type broker struct {
	log           [modelLog]cell
	end           int8
	epoch, leader int8
	mem           [modelIDs]memory
}

func (m *model) execute(k *broker, r request) (outcome, int8) {
	if r.to != k.leader {
		return moved, nobody
	}
	p := &k.mem[r.id]
	switch {
	case p.last == nobody:
		if m.refuse && r.batch != r.from {
			return refused, nobody
		}
	case r.batch <= p.last && r.batch > p.last-p.window:
		for i := k.end - 1; i >= 0; i-- {
			if k.log[i].batch == r.batch && k.log[i].id == r.id {
				return duplicate, i
			}
		}
		panic("BUG: the broker remembers a batch that it does not have")
	case r.batch != p.last+1:
		return refused, nobody
	}
	k.log[k.end] = cell{r.batch, r.id, k.epoch, r.version}
	k.end++
	*p = memory{r.batch, min(p.window+1, windowMax)}
	return appended, k.end - 1
}

func (k *broker) clearLog() { k.truncate(0, true) }

// truncate leaves k records and the memory that they imply, or none.
func (k *broker) truncate(n int8, implied bool) {
	clear(k.log[n:])
	k.end = n
	k.forget()
	for _, c := range k.log[:n] {
		if implied && c.batch != nobody {
			p := &k.mem[c.id]
			*p = memory{c.batch, min(p.window+1, windowMax)}
		}
	}
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

// fill has other producers write until the log is n long.
func (k *broker) fill(n int8) {
	for ; k.end < n; k.end++ {
		k.log[k.end] = cell{batch: nobody, epoch: k.epoch}
	}
}

// endOf is OffsetForLeaderEpoch: where the first record of a later epoch is.
func (k *broker) endOf(epoch int8) int8 {
	for i, c := range k.log[:k.end] {
		if c.epoch > epoch {
			return int8(i)
		}
	}
	return k.end
}
