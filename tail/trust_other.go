//go:build !linux

package tail

// readsEverything: whose symlinks are followed is decided on Linux only.
func readsEverything() bool { return false }

func openTrusted(path string, _ []string) (int, error) { return openRead(path) }
