package tail

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestRemoteFileSystemsAreToldOnce takes /proc for a network file system.
func TestRemoteFileSystemsAreToldOnce(t *testing.T) {
	if remoteKind(t.TempDir()) != "" {
		t.Skip("the temporary directory is on a network file system")
	}
	const procMagic = 0x9fa0
	remoteKinds[procMagic] = "NFS"
	t.Cleanup(func() { delete(remoteKinds, procMagic) })
	var log bytes.Buffer
	n := newNotifier(slog.New(slog.NewTextHandler(&log, nil)))
	n.start()
	defer n.close()
	n.watch(map[string]key{t.TempDir(): {}, "/proc": {}, "/proc/self": {}})
	n.watch(map[string]key{"/proc": {}, "/proc/self/fd": {}})
	if got := strings.Count(log.String(), "network file system"); got != 1 || !strings.Contains(log.String(), "NFS") {
		t.Errorf("told %d times:\n%s", got, log.String())
	}
}
