// Package e2e holds the black-box tests of the shipper binary: the real program as a process of its own, on embedded
// and on real Kafka, killed and cut off while a writer writes. Every test ends by comparing the topic with the files,
// byte for byte: nothing lost, nothing doubled, nothing out of order.
//
// A test named after a number (TestC122..., TestTailMatrix/C038...) is a case from the field; those about files that need no fault of
// the brokers go through the life of one agent together, and the rest of them are scripts in tail/testdata. The clock of the machine
// (C026) is not changed here: a script moves a clock of the watcher, and C026InFull runs an agent whose clock is in a file. A file
// system without events of its own (C015, FUSE) is mounted by a test of tail. What takes minutes or many restarts of brokers is behind the build tag long (`make test-long`) and runs twice there:
// as a user that may read its topic, and as one that may only write. Times of a case that make half an hour are in tests named InFull,
// once each. On real brokers:
//
//	black hole, short and long          S1aShortBlackHole, S1bLongBlackHole
//	refused for good in the middle      RecutS1RefusedInTheMiddle
//	brokers stopped, killed             S1cBrokersStopAndDie, C122RollingRestart; in short: C122BrokersRestart
//	order on the wire                   S2WireOrder
//	outage beyond the brokers' memory   S3LongOutage, with the topic unknown afterwards, too; embedded: S3TopicUnknownAfterTheOutage
//	clean restart, head in doubt        CleanRestartWithTheHeadInDoubt
//	leaders moved                       C143LeaderMovesUnderLoad
//	frozen and thawed                   C139FrozenAndThawed; in short: C139FrozenOnce; with the times of the case: C139InFull
//	leader epochs that rise unseen      UnseenReplicaChange, UnseenLeaderAwayAndBack
//	unclean election                    UncleanElectionHeals, UncleanElectionToAStranger, UncleanElectionRefilled
//	more lost than the spool holds      UncleanElectionBeyondTheSpool
//	backlog older than the expiry       BacklogOlderThanTheExpiry
//	topic recreated, partitions added   C138TopicRecreated, C125PartitionsGrowUnderLoad
//	cluster wiped, replaced             ClusterWiped; embedded: ClusterReplacedIsAdopted
//	answer lost after the append        C130ResponsesLostUnderLoad
//	slow brokers                        embedded: C126SlowBroker; with the times of the case: C126InFull
//	agent killed                        Kill9TwoHundredTimes, RealKill9; while containers rotate and compress, embedded: PodsRotated
//	lanes disturb each other            NoLaneDisturbsAnother
//	what may not be read is told        C130ResponsesLostUnderLoad
//	one line for each doubt and loss    C139FrozenOnce, UncleanElectionHeals
package e2e
