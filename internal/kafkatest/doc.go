// Package kafkatest is what tests use to meet a real Kafka and real faults: a KRaft
// cluster of brokers started from Apache Kafka's own artefacts, proxies that break the
// way to a broker, a reader that shows records with their batch headers, a writer of
// self-checking lines, the agent as a process, and a checker that compares what was
// written with what arrived.
//
// # A cluster
//
//	func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m)) }
//
//	func TestLeaderDies(t *testing.T) {
//		c := kafkatest.Shared(t) // or Start(t, kafkatest.Options{...}) for one of its own
//		c.CreateTopic("logs", 4, 3, map[string]string{"min.insync.replicas": "2"})
//		leader := c.Broker(int(c.Leader("logs", 0)))
//		leader.Kill()
//		...
//		leader.Start()
//		leader.WaitReady()
//	}
//
// The first start of a version fetches 45 jars with Maven and takes about 30 s; later
// ones need 3 s of CPU time and 150 MiB a broker: three on two busy cores are up in about
// 8 s. Needed are a Java 17 runtime and, the first time, Maven; no root, no container. What is absent skips the test with
// one line; SHIPPER_REQUIRE_KAFKA=1 makes that a failure. Further variables:
//
//	SHIPPER_KAFKA_VERSION  version to start, default 4.4.0 (3.9.1 is also known to work)
//	SHIPPER_KAFKA_CACHE    where artefacts are kept, default the user's cache directory
//	SHIPPER_BINARY         agent to run instead of building cmd/shipper
//
// Settings differ from Kafka's defaults only where tests would be slow: a dead broker is
// noticed after 3 s instead of 9 s. Tests give what else they need as Options.Config:
//
//	producer.id.expiration.ms, producer.id.expiration.check.interval.ms  state that expires in seconds
//	replica.lag.time.max.ms         a follower leaves the in-sync set in less than 30 s
//	auto.create.topics.enable       false: a deleted topic stays deleted though a client asks for it
//
// # Faults
//
// Of a broker: Stop, Kill, Freeze, Thaw, Restart, Wipe; of the cluster: MoveLeader,
// Reassign, ElectUnclean, DeleteTopic, WipeAll. Of the way to it (Options.Proxy): Cut,
// BlackHole, Stall, Delay, Reset, DropNextAnswers, HalfAnswers, LateNextRequests, HideTopic. Of the way between
// brokers (Options.ReplicaProxy): the same, so that a leader appends what it cannot
// commit. ProxyNet puts the same proxies before an in-memory kfake cluster, NewProxy
// before anything.
//
// Admin methods go past every proxy and access rule and return when all brokers act on
// the change. DirectBootstrap does the same for a checker.
//
// # From file to topic
//
//	w := kafkatest.NewWriter(t, kafkatest.WriterOptions{Dir: logs, Files: 4, Rotation: kafkatest.RotateRename, RotateLines: 1000})
//	a := kafkatest.NewAgent(t, kafkatest.AgentOptions{Config: yaml})
//	w.Start()
//	a.KillLoop(20, 50*time.Millisecond, time.Second, seed)
//	w.Stop()
//	a.Start()
//	kafkatest.AwaitRecords(t, c.DirectBootstrap(), "logs", w.Lines(), kafkatest.ReadOptions{})
//	code := a.Stop(10 * time.Second)
//	got, headers := kafkatest.ReadTopic(t, c.DirectBootstrap(), "logs", kafkatest.ReadOptions{})
//	if err := kafkatest.Check(w.Written(), got).Err(); err != nil {
//		t.Error(err)
//	}
//
// # What a test leaves
//
// Nothing, if it passed. If it failed, logs stay in a directory that the test names, for
// a week. No broker and no agent outlives the test process, even one that is killed with
// SIGKILL (on Linux; see process.go); the directory such a process leaves is removed by
// the next run.
package kafkatest
