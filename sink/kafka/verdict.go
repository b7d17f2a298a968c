package kafka

import "fmt"

// Verdict is what we do about a broker's answer to one batch. The zero value is the safe one: nothing is believed to
// have happened, the batch goes again unchanged, nothing is given up.
type Verdict uint8

const (
	RetryRoute Verdict = iota // look the leader up again, then send again unchanged
	Retry                     // send again unchanged
	Acked                     // in the log, on all replicas asked for
	Refused                   // sequence, epoch or producer id: a question to resolve, never a reason to give up
	TooLarge                  // the batch exceeds a limit of topic or broker
	BadTime                   // the topic takes no records of this time
	BadRecord                 // the batch, or a record that the answer may name, is invalid
	Denied                    // a permission is missing
	Hold                      // a setting or policy that names no record: waits for an operator

	verdictCount
)

var verdictNames = [verdictCount]string{"retry-route", "retry", "acked", "refused", "too-large", "bad-time", "bad-record", "denied", "hold"}

func (v Verdict) String() string {
	if v < verdictCount {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// What an answer says beyond its verdict.
const (
	// untouched: this attempt appended nothing. An earlier attempt may have: the checks behind these codes run before
	// the broker looks for a duplicate, so a retry of a batch that is in the log is refused just the same.
	untouched = 1 << iota

	// proof: untouched, and if this was the first and only attempt, the batch is in no log. Refusals of sequence,
	// epoch and id are untouched without being proof: they say that broker and we disagree about the past.
	proof

	// slow: the partition has no leader or too few replicas. A request to it can hold its connection for the whole
	// acks timeout, and a broker serves one request of a connection at a time.
	slow
)

type answer struct {
	verdict Verdict
	facts   uint8
	advice  string // what an operator can do, for verdicts that wait for one
}

const rejected = untouched | proof

const (
	adviceWrite    = "grant WRITE on the topic to this principal"
	adviceCluster  = "grant IDEMPOTENT_WRITE on the cluster to this principal (brokers before 2.8 ask for it)"
	adviceSASL     = "check kafka.sasl against the brokers' listener and the principal's credentials"
	adviceOldTopic = "raise the topic's message.format.version to 0.11 or newer"
	adviceVersion  = "the broker is too old for this request: Kafka 0.11 is needed, for zstd 2.1"
	adviceCodec    = "set kafka.compression to a codec that broker and topic support (zstd needs Kafka 2.1)"
	adviceRequest  = "the broker takes this for an invalid request: check that brokers and proxies speak Kafka's own protocol"
)

// answers holds every code a produce request is known to be answered with, or that would be clear if it were. All other
// codes, unknown ones included, are RetryRoute without any fact. Sources: Kafka's ReplicaManager, UnifiedLog,
// LogValidator and ProducerAppendInfo; KIP-98, KIP-360, KIP-467, KIP-516.
//
// On both sides of the append, so never a fact: 3 (topic deleted while waiting), 6 (leadership lost while waiting),
// 56 (log directory died), 100, 103, -1 (any exception). 7 and 20 come after it.
var answers = map[int16]answer{
	0:  {verdict: Acked},
	46: {verdict: Acked}, // DUPLICATE_SEQUENCE_NUMBER: brokers before 1.1 say so of a batch they hold

	45: {verdict: Refused, facts: untouched}, // OUT_OF_ORDER_SEQUENCE_NUMBER
	47: {verdict: Refused, facts: untouched}, // INVALID_PRODUCER_EPOCH
	59: {verdict: Refused, facts: untouched}, // UNKNOWN_PRODUCER_ID: brokers before 2.5
	90: {verdict: Refused},                   // PRODUCER_FENCED: only coordinators say so today

	7:  {verdict: Retry, facts: slow},            // REQUEST_TIMED_OUT: appended, not replicated in time
	19: {verdict: Retry, facts: slow | rejected}, // NOT_ENOUGH_REPLICAS
	20: {verdict: Retry, facts: slow},            // NOT_ENOUGH_REPLICAS_AFTER_APPEND
	89: {verdict: Retry},                         // THROTTLING_QUOTA_EXCEEDED

	5: {verdict: RetryRoute, facts: slow}, // LEADER_NOT_AVAILABLE

	10: {verdict: TooLarge, facts: rejected},  // MESSAGE_TOO_LARGE
	18: {verdict: TooLarge, facts: rejected},  // RECORD_LIST_TOO_LARGE
	32: {verdict: BadTime, facts: rejected},   // INVALID_TIMESTAMP
	2:  {verdict: BadRecord, facts: rejected}, // CORRUPT_MESSAGE: perhaps only on the wire
	87: {verdict: BadRecord, facts: rejected}, // INVALID_RECORD: also a compacted topic without keys, then for every record

	29: {verdict: Denied, facts: rejected, advice: adviceWrite},
	31: {verdict: Denied, facts: rejected, advice: adviceCluster},
	33: {verdict: Denied, facts: rejected, advice: adviceSASL}, // UNSUPPORTED_SASL_MECHANISM
	34: {verdict: Denied, facts: rejected, advice: adviceSASL}, // ILLEGAL_SASL_STATE
	58: {verdict: Denied, facts: rejected, advice: adviceSASL}, // SASL_AUTHENTICATION_FAILED

	17: {verdict: Hold, facts: rejected, advice: "the topic's name is not valid or is reserved: choose another topic"},
	21: {verdict: Hold, facts: rejected, advice: adviceRequest}, // INVALID_REQUIRED_ACKS
	35: {verdict: Hold, facts: rejected, advice: adviceVersion},
	40: {verdict: Hold, advice: "fix the topic's configuration: the broker calls it invalid"}, // INVALID_CONFIG
	42: {verdict: Hold, advice: adviceRequest},                                                // INVALID_REQUEST
	43: {verdict: Hold, facts: rejected, advice: adviceOldTopic},
	// POLICY_VIOLATION: from vendors' plugins only, of which we do not know where they stand: not proof.
	44: {verdict: Hold, facts: untouched, advice: "the cluster's policy refuses the batch: ask the cluster's operator which rule it breaks"},
	76: {verdict: Hold, facts: rejected, advice: adviceCodec},
}

// VerdictOf is the verdict on the error code of one partition's answer to a produce request.
func VerdictOf(code int16) Verdict { return answers[code].verdict }

// AppendedNothing reports whether the attempt that was answered with code surely appended nothing. An earlier attempt
// may still have.
func AppendedNothing(code int16) bool { return answers[code].facts&untouched != 0 }

// NotPersisted reports whether code, as the answer to the first and only attempt of a batch, proves that the batch is
// in no log.
func NotPersisted(code int16) bool { return answers[code].facts&proof != 0 }

// Slow reports whether code says that the partition has no leader or too few replicas, so that a request to it may hold
// up all others on its connection: send it over a connection of its own.
func Slow(code int16) bool { return answers[code].facts&slow != 0 }

// Advice is what an operator can do about a code whose verdict is Denied or Hold, empty for others.
func Advice(code int16) string { return answers[code].advice }
