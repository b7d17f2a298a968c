//go:build !linux

package tail

// remoteKind is known on Linux only.
func remoteKind(string) string { return "" }
