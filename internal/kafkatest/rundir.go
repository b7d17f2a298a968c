package kafkatest

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// What a run leaves on disk lies under os.TempDir()/shipper-kafkatest-UID:
//
//	run-*/       one cluster or agent: lock (flocked while its process lives), logs, data
//	ports/PORT   flocked by the process that uses that loopback port
//
// A run directory whose lock nobody holds belongs to a process that was killed; the
// next run removes it, unless it carries a file "keep" younger than keptMax.
const (
	keptMax = 7 * 24 * time.Hour
	lockTry = 200 // ports tried before giving up
)

// Ports are taken from below the range the kernel gives to outgoing connections
// (32768 up on Linux), so that a stopped broker finds its port free again.
const portMin, portMax = 15000, 32000

// runDir is a directory of one cluster or agent.
type runDir struct {
	path string
	lock *os.File
}

func runRoot() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("shipper-kafkatest-%d", os.Getuid()))
}

// newRunDir makes a directory after sweeping those of killed processes.
func newRunDir(kind string) (*runDir, error) {
	root := runRoot()
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	sweep(root)
	// It gets its name once it is locked: another sweep would take it for a killed run's.
	made, err := os.MkdirTemp(root, "new-"+kind+"-")
	if err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	lock, err := tryLock(filepath.Join(made, "lock"))
	if err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	path := filepath.Join(root, "run-"+strings.TrimPrefix(filepath.Base(made), "new-"))
	if err := os.Rename(made, path); err != nil {
		lock.Close()
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	return &runDir{path: path, lock: lock}, nil
}

// sweep removes what killed runs left. A directory that is being made right now is left
// alone for an hour. Errors are left to the next sweep.
func sweep(root string) {
	half, _ := filepath.Glob(filepath.Join(root, "new-*"))
	for _, d := range half {
		if fi, err := os.Stat(d); err == nil && time.Since(fi.ModTime()) > time.Hour {
			_ = os.RemoveAll(d)
		}
	}
	dirs, _ := filepath.Glob(filepath.Join(root, "run-*"))
	for _, d := range dirs {
		if fi, err := os.Stat(filepath.Join(d, "keep")); err == nil && time.Since(fi.ModTime()) < keptMax {
			continue
		}
		lock, err := tryLock(filepath.Join(d, "lock"))
		if err != nil {
			continue
		}
		_ = os.RemoveAll(d)
		lock.Close()
	}
}

// keep marks the directory as worth a look; its data are dropped at close all the same.
func (d *runDir) keep() {
	// A mark that cannot be written costs a log, not the test.
	_ = os.WriteFile(filepath.Join(d.path, "keep"), nil, 0o600)
}

// close removes the directory, or, if it is to be kept, only the brokers' data in it.
func (d *runDir) close() {
	if _, err := os.Stat(filepath.Join(d.path, "keep")); err == nil {
		data, _ := filepath.Glob(filepath.Join(d.path, "data-*"))
		for _, dir := range data {
			_ = os.RemoveAll(dir)
		}
	} else {
		_ = os.RemoveAll(d.path)
	}
	d.lock.Close()
}

var errLocked = errors.New("locked by another process")

// tryLock opens file and locks it for this process; errLocked if another holds it.
func tryLock(file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, err
	}
	return f, nil
}

// port is a loopback port nobody else running these tests will take.
type port struct {
	number int
	lock   *os.File
}

func (p *port) addr() string { return fmt.Sprintf("127.0.0.1:%d", p.number) }

func (p *port) release() { p.lock.Close() }

// reservePort finds a port that is free now and reserves it among test processes.
func reservePort() (*port, error) {
	dir := filepath.Join(runRoot(), "ports")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	for range lockTry {
		n := portMin + mrand.IntN(portMax-portMin)
		lock, err := tryLock(filepath.Join(dir, fmt.Sprint(n)))
		if errors.Is(err, errLocked) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("kafkatest: %w", err)
		}
		p := &port{number: n, lock: lock}
		l, err := net.Listen("tcp", p.addr())
		if err != nil {
			p.release()
			continue
		}
		l.Close()
		return p, nil
	}
	return nil, fmt.Errorf("kafkatest: no free loopback port among %d tried in [%d, %d)", lockTry, portMin, portMax)
}

// newUUID returns a random id as Kafka writes it: 22 characters of URL-safe base64
// that do not start with a dash.
func newUUID() string {
	for {
		var b [16]byte
		rand.Read(b[:])
		if s := base64.RawURLEncoding.EncodeToString(b[:]); !strings.HasPrefix(s, "-") {
			return s
		}
	}
}
