package kafka

// refQueue is a lane's spooled batches in order, from its head on. A ring, so
// that a steady flow allocates nothing; it grows with the backlog, 40 bytes a
// batch, and shrinks when the backlog is gone.
type refQueue struct {
	buf   []Ref // a power of two long
	first int
	n     int
	total *int // of several queues together
}

const refQueueMin = 4

func (q *refQueue) len() int { return q.n }

func (q *refQueue) at(i int) *Ref { return &q.buf[(q.first+i)&(len(q.buf)-1)] }

func (q *refQueue) push(r Ref) {
	if q.n == len(q.buf) {
		q.resize(max(refQueueMin, 2*len(q.buf)))
	}
	q.count(1)
	*q.at(q.n - 1) = r
}

func (q *refQueue) count(by int) {
	q.n += by
	*q.total += by
}

func (q *refQueue) pop() {
	if q.n == 0 {
		panic("BUG: a lane settled a batch that is not in its queue")
	}
	q.first = (q.first + 1) & (len(q.buf) - 1)
	q.count(-1)
	q.shrink()
}

func (q *refQueue) shrink() {
	size := len(q.buf)
	for size > refQueueMin && q.n < size/8 {
		size /= 4
	}
	if size < len(q.buf) {
		q.resize(max(size, refQueueMin))
	}
}

// replaceFirst puts refs in the place of the first.
func (q *refQueue) replaceFirst(refs []Ref) {
	since := q.at(0).since
	q.pop()
	for i := len(refs) - 1; i >= 0; i-- {
		if q.n == len(q.buf) {
			q.resize(max(refQueueMin, 2*len(q.buf)))
		}
		q.first = (q.first - 1) & (len(q.buf) - 1)
		q.count(1)
		*q.at(0) = refs[i]
		q.at(0).since = since
	}
}

// replaceRun puts ref in the place of the n neighbours from index first on.
func (q *refQueue) replaceRun(first uint64, n int, ref Ref) {
	i := 0
	for i+n < q.n && q.at(i).First != first {
		i++
	}
	if i+n > q.n || q.at(i).First != first || q.at(i+n-1).Next() != ref.Next() {
		panic("BUG: batches were merged that are not in their lane's queue")
	}
	ref.since = q.at(i).since
	*q.at(i + n - 1) = ref
	for j := i - 1; j >= 0; j-- {
		*q.at(j + n - 1) = *q.at(j)
	}
	q.first = (q.first + n - 1) & (len(q.buf) - 1)
	q.count(1 - n)
	q.shrink()
}

// prepend puts refs before all others.
func (q *refQueue) prepend(refs []Ref) {
	all := make([]Ref, 0, len(refs)+q.n)
	all = append(all, refs...)
	for i := range q.n {
		all = append(all, *q.at(i))
	}
	q.count(-q.n)
	q.buf, q.first = nil, 0
	for _, r := range all {
		q.push(r)
	}
}

func (q *refQueue) resize(size int) {
	buf := make([]Ref, size)
	for i := range q.n {
		buf[i] = *q.at(i)
	}
	q.buf, q.first = buf, 0
}
