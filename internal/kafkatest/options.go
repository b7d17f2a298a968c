package kafkatest

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// DefaultVersion is the Apache Kafka version that is started unless Options.Version
// or the environment variable SHIPPER_KAFKA_VERSION says otherwise. 3.9.1 is the
// oldest version the harness is run with.
const DefaultVersion = "4.4.0"

// Environment variables the package reads.
const (
	envVersion = "SHIPPER_KAFKA_VERSION" // version to start
	envRequire = "SHIPPER_REQUIRE_KAFKA" // 1: absent Java, Maven or artefacts fail the test
	envCache   = "SHIPPER_KAFKA_CACHE"   // where artefacts are kept
	envBinary  = "SHIPPER_BINARY"        // agent binary to use instead of building one
)

// brokersMax bounds the brokers of one cluster: each is a JVM of about 170 MiB.
const brokersMax = 5

// Options describe a cluster. The zero value is three plaintext brokers of
// DefaultVersion without proxies.
//
// Every broker has four listeners: CLIENT, which is what Bootstrap returns and what
// TLS, Users and Proxy apply to; INTERNAL, over which brokers replicate and which
// ReplicaProxy applies to; CONTROLLER; and HARNESS, plaintext and never faulted, for the
// methods of Cluster and for checkers (DirectBootstrap).
type Options struct {
	Brokers int    // number of brokers, 1 to 5; 0 is 3
	Version string // Apache Kafka version; "" is SHIPPER_KAFKA_VERSION or DefaultVersion

	// Config holds further server.properties of every broker. They win over the
	// harness's own, but for listeners, node ids and directories.
	Config map[string]string

	Proxy        bool // clients reach broker i through Cluster.Proxy(i)
	ReplicaProxy bool // brokers fetch from broker i through Cluster.ReplicaProxy(i)

	TLS       bool // CLIENT speaks TLS with a certificate of Cluster.CAFile
	MutualTLS bool // TLS, and the broker asks for a certificate of that CA (Cluster.ClientCertFiles)

	// Users maps names to passwords. If it is not empty, CLIENT asks for SASL: PLAIN,
	// SCRAM-SHA-256 and SCRAM-SHA-512 are all offered for these users. AddUser adds
	// more for SCRAM later.
	Users map[string]string

	// ACLs turns StandardAuthorizer on: a user may do only what Grant allows.
	// Needs Users or MutualTLS, as an anonymous client is the harness itself.
	ACLs bool
}

// withDefaults fills what is zero and reports what cannot be.
func (o Options) withDefaults() (Options, error) {
	if o.Brokers == 0 {
		o.Brokers = 3
	}
	if o.Brokers < 1 || o.Brokers > brokersMax {
		return o, fmt.Errorf("kafkatest: Options.Brokers is %d, want 1 to %d", o.Brokers, brokersMax)
	}
	if o.Version == "" {
		o.Version = os.Getenv(envVersion)
	}
	if o.Version == "" {
		o.Version = DefaultVersion
	}
	if _, _, err := majorMinor(o.Version); err != nil {
		return o, err
	}
	o.TLS = o.TLS || o.MutualTLS
	if o.ACLs && len(o.Users) == 0 && !o.MutualTLS {
		return o, fmt.Errorf("kafkatest: Options.ACLs needs Users or MutualTLS: an anonymous client is a super user")
	}
	return o, nil
}

// protocol is Kafka's name for what CLIENT speaks.
func (o Options) protocol() string {
	p := "PLAINTEXT"
	if o.TLS {
		p = "SSL"
	}
	if len(o.Users) > 0 {
		return "SASL_" + p
	}
	return p
}

// majorMinor reads the first two numbers of a Kafka version.
func majorMinor(version string) (major, minor int, err error) {
	parts := strings.Split(version, ".")
	if len(parts) == 3 {
		if major, err = strconv.Atoi(parts[0]); err == nil {
			if minor, err = strconv.Atoi(parts[1]); err == nil {
				return major, minor, nil
			}
		}
	}
	return 0, 0, fmt.Errorf("kafkatest: Kafka version %q is not of the form 4.4.0", version)
}

// properties renders the server.properties of one node. Quick expiry of dead brokers
// (3 s instead of 9 s) and small buffers are what makes tests short; everything else is
// the broker's default, so that tests meet what users meet.
func (o Options) properties(n *node, voters string, dir string) string {
	rf := strconv.Itoa(min(3, o.Brokers))
	p := map[string]string{
		"broker.session.timeout.ms":                "3000",
		"broker.heartbeat.interval.ms":             "500",
		"offsets.topic.replication.factor":         rf,
		"offsets.topic.num.partitions":             "3",
		"transaction.state.log.replication.factor": rf,
		"transaction.state.log.num.partitions":     "3",
		"group.initial.rebalance.delay.ms":         "0",
		"num.network.threads":                      "2",
		"num.io.threads":                           "4",
		"num.recovery.threads.per.data.dir":        "1",
		"log.cleaner.dedupe.buffer.size":           "4194304",
		"log.index.size.max.bytes":                 "1048576",
		"log.segment.delete.delay.ms":              "1000",
		"controlled.shutdown.max.retries":          "1",
	}
	if o.ACLs {
		p["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		p["super.users"] = "User:ANONYMOUS"
	}
	o.clientSecurity(p, dir)
	maps.Copy(p, o.Config)
	maps.Copy(p, map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        strconv.Itoa(n.id),
		"controller.quorum.voters":       voters,
		"controller.listener.names":      "CONTROLLER",
		"inter.broker.listener.name":     "INTERNAL",
		"listeners":                      fmt.Sprintf("INTERNAL://%s,CONTROLLER://%s,CLIENT://%s,HARNESS://%s", n.internal, n.controller, n.client, n.harness),
		"advertised.listeners":           fmt.Sprintf("INTERNAL://%s,CLIENT://%s,HARNESS://%s", n.internalSeen, n.clientSeen, n.harness),
		"listener.security.protocol.map": "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,HARNESS:PLAINTEXT,CLIENT:" + o.protocol(),
		"log.dirs":                       n.dataDir,
	})
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s=%s\n", k, strings.ReplaceAll(p[k], `\`, `\\`))
	}
	return b.String()
}

// clientSecurity adds the settings of the CLIENT listener.
func (o Options) clientSecurity(p map[string]string, dir string) {
	const l = "listener.name.client."
	if o.TLS {
		p[l+"ssl.keystore.type"] = "PEM"
		p[l+"ssl.keystore.location"] = dir + "/" + brokerPEM
		p[l+"ssl.truststore.type"] = "PEM"
		p[l+"ssl.truststore.location"] = dir + "/" + caPEM
	}
	if o.MutualTLS {
		p[l+"ssl.client.auth"] = "required"
	}
	if len(o.Users) == 0 {
		return
	}
	var plain strings.Builder
	plain.WriteString("org.apache.kafka.common.security.plain.PlainLoginModule required")
	for _, u := range slices.Sorted(maps.Keys(o.Users)) {
		fmt.Fprintf(&plain, " user_%s=%q", u, o.Users[u])
	}
	plain.WriteString(";")
	scram := "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	p[l+"sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
	p[l+"plain.sasl.jaas.config"] = plain.String()
	p[l+"scram-sha-256.sasl.jaas.config"] = scram
	p[l+"scram-sha-512.sasl.jaas.config"] = scram
}
