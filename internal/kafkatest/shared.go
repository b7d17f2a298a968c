package kafkatest

import (
	"sync"
	"testing"
)

// sharedCluster is a cluster that tests of one process share, started by the first that asks.
type sharedCluster struct {
	o     Options
	once  sync.Once
	state *state
	err   error
}

// Users of the cluster that SharedACLs returns; the password of each is its name.
const (
	UserOne = "user-one"
	UserTwo = "user-two"
)

var (
	shared     = sharedCluster{o: Options{Proxy: true, ReplicaProxy: true}}
	sharedACLs = sharedCluster{o: Options{Proxy: true, ReplicaProxy: true, ACLs: true, Users: map[string]string{UserOne: UserOne, UserTwo: UserTwo}}}
)

// Shared returns the cluster that all tests of this process share: three plaintext
// brokers, all behind Proxy and ReplicaProxy. It is started by the first caller; Run ends it. When a test
// ends the cluster is brought back to health, so tests that use it must not run in
// parallel with one another if they fault it, and each should use topics of its own.
func Shared(tb testing.TB) *Cluster {
	tb.Helper()
	return shared.handle(tb)
}

// SharedACLs is Shared with Options.ACLs and the users UserOne and UserTwo, who may do
// nothing but what Grant allows them.
func SharedACLs(tb testing.TB) *Cluster {
	tb.Helper()
	return sharedACLs.handle(tb)
}

func (s *sharedCluster) handle(tb testing.TB) *Cluster {
	tb.Helper()
	s.once.Do(func() { s.state, s.err = startState(s.o) })
	if s.err != nil {
		refuse(tb, s.err)
	}
	c := &Cluster{tb: tb, state: s.state}
	c.restoreAtEnd()
	return c
}

// For returns a handle for a subtest: what fails fails that one. When it ends, the
// cluster is brought back to health.
func (c *Cluster) For(tb testing.TB) *Cluster {
	sub := &Cluster{tb: tb, state: c.state}
	sub.restoreAtEnd()
	return sub
}

func (c *Cluster) restoreAtEnd() {
	c.tb.Cleanup(func() {
		c.keepIfFailed(c.tb)
		c.Restore()
	})
}

// Run runs a package's tests and ends what they shared. Use it as
//
//	func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m)) }
//
// A package that uses Shared without it leaves nothing running, as brokers die with
// the process, but a directory that the next run removes.
func Run(m *testing.M) int {
	code := m.Run()
	for _, s := range []*sharedCluster{&shared, &sharedACLs} {
		if s.state != nil {
			s.state.close()
		}
	}
	if agentBinary.dir != nil {
		agentBinary.dir.close()
	}
	return code
}
