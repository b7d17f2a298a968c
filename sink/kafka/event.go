package kafka

// What goes into a lane and what comes out of it: plain integers, so that a
// Lane, an Event and an Action are comparable and cost no allocation.

// Batch is what the machine knows of a spooled batch.
type Batch struct {
	First   uint64
	Count   uint32
	MaxTime int64 // newest record time, ms since 1970
}

// Next is the index behind the batch.
func (b Batch) Next() uint64 { return b.First + uint64(b.Count) }

// Identity is a producer id as one lane uses it. PID -1: not asked for yet.
// Partition -1: not chosen yet.
type Identity struct {
	From      uint64
	PID       int64
	Epoch     int16
	Partition int32
}

// Sequence is the base sequence of the batch that starts at index first.
func (i Identity) Sequence(first uint64) int32 { return int32((first - i.From) % sequenceModulus) }

// AckedBatch is a batch with its ack: End is the offset behind its last record, Epoch the
// leader epoch known when its request was sent; -1: it proves nothing.
type AckedBatch struct {
	Batch
	Base      int64
	End       int64
	Epoch     int32
	Partition int32
	Firm      bool // no attempt was appended in an older epoch; false: nobody knows
}

// Route is what metadata say of the lane's partition. AskedAt is when they
// were asked for: what happened later is not in them.
type Route struct {
	State   RouteState
	Leader  int32
	Epoch   int32
	AskedAt int64 // ms; 0: never

	// Losses is how many connections to the leader were lost, when the metadata came.
	Losses uint64

	// Followers has a bit for each of the partition's replicas in sync besides
	// the leader, its broker id mod 64: an ack waits for them. For the driver.
	Followers uint64
}

// RouteState says whether a lane may send to its partition.
type RouteState uint8

const (
	RouteUnknown      RouteState = iota // no metadata yet, or they could not be had
	RouteOK                             // the partition has a leader
	RouteNoLeader                       // the partition is known and has none
	RouteNoTopic                        // the topic or partition is not known
	RouteDenied                         // no permission to describe the topic
	RouteOtherTopic                     // the topic's id, or the partition, is not the identity's
	RouteOtherCluster                   // the cluster's id is not the identity's
)

// Reason says why a new identity begins. The numbers are on disk.
type Reason uint8

const (
	_               Reason = iota
	ReasonFirst            // the lane had none
	ReasonStart            // every start of the agent ends every identity
	ReasonRefused          // the broker refuses the old one and lost nothing of ours, or refused a batch for what is in it
	ReasonLost             // the broker lost batches that are no longer held
	ReasonGap              // indexes below are missing
	ReasonNotOurs          // somebody else used the old one
	ReasonRecreated        // the topic was deleted and created again
	ReasonOperator         // asked for by an operator
	reasonCount
)

var reasonNames = [reasonCount]string{"", "first", "start", "refused", "lost by the broker", "gap", "used by another producer", "topic recreated", "operator"}

func (r Reason) String() string { return reasonNames[r] }

// Cut says why the batch at head is to be replaced in the spool.
type Cut uint8

const (
	CutNone  Cut = iota
	CutAhead     // larger than its topic takes, as others have shown; it was never sent
	CutSize      // refused as too large
	CutFault     // refused since a record in it is invalid, which the answer names, or which is alone
	CutTimes     // refused for its times: none is cut, but they may have to be made one
)

// renumbers says that sequences of the old batch were on the wire, so that the
// new ones need others.
func (c Cut) renumbers() bool { return c == CutSize || c == CutFault }

// Cause says in one word why a lane is not sending; see Lane.Cause.
type Cause uint8

const (
	CauseNone Cause = iota
	CauseUnreachable
	CauseNoLeader
	CauseNoTopic
	CauseDenied
	CauseOtherTopic
	CauseOtherCluster
	CauseRetriable
	CauseTooLarge
	CauseBadTime
	CauseBadRecord
	CausePolicy
	CauseNoProducerID
	causeCount
)

var causeNames = [causeCount]string{"", "broker unreachable", "partition has no leader", "topic unknown", "permission denied",
	"topic was recreated", "cluster id changed", "broker answered a retriable error", "batch larger than the topic takes",
	"record time refused", "record refused", "refused by topic policy or configuration", "no producer id"}

func (c Cause) String() string { return causeNames[c] }

// Advice says what a person can do about a cause that time alone does not end; empty: nothing.
func (c Cause) Advice() string {
	switch c {
	case CauseOtherCluster:
		return "check kafka.brokers; if this cluster is to get what waits, run `shipper fix lane`: it lists what waits and how to go on"
	case CauseNoTopic:
		return "create the topic"
	case CauseDenied:
		return adviceWrite
	}
	return ""
}

// EventKind names what happened.
type EventKind uint8

const (
	EvOffer          EventKind = iota // Batch, Identity, InDoubt: the next batch in the spool at or above head
	EvRoute                           // Route
	EvGranted                         // Identity.PID, Epoch, Partition
	EvIdentityKept                    // the identity granted last is durable
	EvAnswer                          // Verdict, Base, AppendTime
	EvUnanswered                      // the request failed; NotSent: none of its bytes left
	EvAckKept                         // the ack of the batch at head is durable
	EvEpochEnd                        // Base: end of the epoch asked for, -1 unknown; Epoch; Parted; Route.Epoch: as of the question
	EvReadBack                        // Found, Base or Absent; neither: cannot be told. Route.Epoch as of the question
	EvLoss                            // Lost, Held, Unsure, Acked, Found: the answer to FindLoss
	EvHeadKept                        // the step back is durable
	EvQuestionFailed                  // the question asked could not be answered; Cause
	EvCut                             // Same, Evened, Dead, StepMs: the batches, or the gap, that replace the one at head are durable
	EvLarge                           // the batch at head is larger than its topic takes, as others have shown
	EvSkipped                         // the batch at head cannot be read; a durable gap stands in its place
	EvAdopt                           // an operator wants the lane to go on in the cluster that answers now
	EvTick                            // time passed
)

// Event is what happened to a lane, with the time (ms) and a random number
// that spreads its retries. Which other fields count depends on Kind.
type Event struct {
	Kind EventKind
	Now  int64
	Rand uint32

	Batch       Batch
	Identity    Identity
	InDoubt     bool // EvOffer: may have been sent before this process started
	Large       bool // EvOffer: larger than its topic takes, as others have shown, and of more than one record
	Route       Route
	Verdict     Verdict
	NotAppended bool // EvAnswer: this attempt appended nothing, and no other answer of its kind ever means more
	Named       bool // EvAnswer: it names some of the records as the ones at fault
	Slow        bool // EvAnswer, EvUnanswered: the request waited for its time-out
	Base        int64
	AppendTime  int64
	NotSent     bool
	ByID        bool  // EvAnswer, EvUnanswered: the request went by the topic's id, so to no other topic of its name
	Epoch       int32 // EvEpochEnd: the epoch that ends there
	Parted      bool  // EvEpochEnd: the leader has older and newer records, but none of the epoch
	Found       bool
	Absent      bool
	Lost        uint64     // EvLoss: first index that may be lost; head or more: none
	Held        uint64     // EvLoss: from here to head all batches are in the spool
	Unsure      uint64     // EvLoss: batches from Lost to here may be in the log after all
	Acked       AckedBatch // EvLoss: the last ack below Lost
	Cause       Cause
	Same        bool  // EvCut: the batch has the boundaries that it had
	Evened      bool  // EvCut with Same: its times were made one
	Dead        bool  // EvCut: it was one record, in whose place stands a gap
	StepMs      int64 // EvCut with Same: how far to step back in time at once; 0: not known
}

// ActionKind names what the driver must do.
type ActionKind uint8

const (
	ActRefresh         ActionKind = iota // fetch metadata; answer with EvRoute
	ActAskIdentity                       // choose a partition if Identity.Partition is -1, get a producer id; EvGranted or EvQuestionFailed
	ActPersistIdentity                   // write Identity; EvIdentityKept
	ActAskEpochEnd                       // OffsetForLeaderEpoch(Acked.Epoch); EvEpochEnd or EvQuestionFailed
	ActReadBack                          // look for Batch under Identity in the log; EvReadBack or EvQuestionFailed
	ActFindLoss                          // find the first acked batch that the leader lacks, and if Acked has a Count, whether there is one: that is the last; EvLoss or EvQuestionFailed
	ActSend                              // send Batch under Identity; EvAnswer or EvUnanswered
	ActAck                               // write Acked; EvAckKept. Everything below Acked.Next() is done
	ActMoveHead                          // write the head's step back to Index, below which Acked is the last ack, and Top, where it began; EvHeadKept, then offer from there
	ActCut                               // replace Batch in the spool for Cut, and in the same commit write Identity if it has a PID; EvCut or EvQuestionFailed
	ActWake                              // EvTick at Index (ms)
	ActReport                            // tell people: Report, of Records from Index on
)

// Report says what an ActReport is about.
type Report uint8

const (
	ReportMaybeDoubled Report = iota // Records may be in the topic twice
	ReportNotDoubled                 // Records reported as possibly doubled were not
	ReportLost                       // Records were acked and are gone from the broker, and are no longer held
	ReportHealed                     // Records were acked, are gone from the broker, and are sent again
	ReportFound                      // Records in doubt were in the log already
	ReportNewIdentity                // a new producer id begins, for Reason
	ReportNotOurs                    // an answer shows that another producer used our identity
	ReportShifted                    // Records are in the topic with another time than their own
	ReportUnverified                 // the leader does not know the epoch of our last ack
)

// Action is one thing for the driver to do.
type Action struct {
	Kind     ActionKind
	Batch    Batch
	Identity Identity
	Reason   Reason
	Acked    AckedBatch
	Route    Route
	Index    uint64
	Top      uint64
	Lost     uint64 // ActMoveHead: what lies from here to Index is lost, and held nowhere
	Slow     bool
	Shift    bool  // ActSend: move the times so that the newest is BackMs ago
	BackMs   int64 // ActSend
	Cut      Cut
	Report   Report
	Records  uint64
}

// Actions is what a step asks for, in order.
type Actions struct {
	n    int
	list [6]Action
}

// All returns the actions in order; valid until the next Step into a.
func (a *Actions) All() []Action { return a.list[:a.n] }

func (a *Actions) add(x Action) {
	if a.n == len(a.list) {
		panic("BUG: a lane step asked for too many actions")
	}
	a.list[a.n] = x
	a.n++
}

// report tells of the records from index `from` to `to`, if there are any.
func (a *Actions) report(r Report, from, to uint64, why Reason) {
	if to > from {
		a.add(Action{Kind: ActReport, Report: r, Index: from, Records: to - from, Reason: why})
	}
}
