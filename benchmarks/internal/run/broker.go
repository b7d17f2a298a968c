//go:build linux

package run

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"shipper/benchmarks/internal/broker"
)

// BrokerOptions of a broker process.
type BrokerOptions struct {
	Bin      string
	CPU      int
	Verify   bool
	Kfake    bool
	AckDelay time.Duration

	Partitions int // of every topic; 0: its default
}

// Broker is a nullbroker in a process of its own.
type Broker struct {
	*Process
	Addr string
	http string
}

// StartBroker waits until it serves.
func StartBroker(o BrokerOptions) (*Broker, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	args := []string{"-verify=" + strconv.FormatBool(o.Verify), "-kfake=" + strconv.FormatBool(o.Kfake), "-ack-delay", o.AckDelay.String()}
	if o.Partitions > 0 {
		args = append(args, "-partitions", strconv.Itoa(o.Partitions))
	}
	p, err := Start(Command{Path: o.Bin, Args: args, CPU: o.CPU, Stdout: w, Stderr: os.Stderr})
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	out := bufio.NewReader(r)
	line, err := out.ReadBytes('\n')
	go func() { // the totals it prints at its end are read over HTTP before
		io.Copy(io.Discard, out) //nolint:errcheck // nothing to lose
		r.Close()
	}()
	var where struct{ Addr, HTTP string }
	if err == nil {
		err = json.Unmarshal(line, &where)
	}
	if err != nil {
		p.Kill()
		return nil, fmt.Errorf("the broker did not say where it listens: %w", err)
	}
	return &Broker{Process: p, Addr: where.Addr, http: "http://" + where.HTTP}, nil
}

// Totals asks for the counters.
func (b *Broker) Totals() (broker.Totals, error) {
	var t broker.Totals
	resp, err := http.Get(b.http + "/stats")
	if err != nil {
		return t, err
	}
	defer resp.Body.Close()
	return t, json.NewDecoder(resp.Body).Decode(&t)
}

// Down cuts the broker off, Up brings it back.
func (b *Broker) Down() error { return b.post("/down") }
func (b *Broker) Up() error   { return b.post("/up") }

func (b *Broker) post(path string) error {
	resp, err := http.Post(b.http+path, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("broker answered %s to %s", resp.Status, path)
	}
	return nil
}

// WaitRecords waits until the broker has counted that many records. It gives up when the producer has ended before.
func (b *Broker) WaitRecords(records int64, producer *Process, timeout time.Duration) (broker.Totals, error) {
	deadline := time.Now().Add(timeout)
	for {
		t, err := b.Totals()
		switch {
		case err != nil:
			return t, err
		case t.Records >= records:
			return t, nil
		case time.Now().After(deadline):
			return t, fmt.Errorf("%d of %d lines had arrived after %v", t.Records, records, timeout)
		}
		select {
		case <-producer.Exited():
			return t, errors.Join(fmt.Errorf("%s ended when %d of %d lines had arrived", producer.cmd.Path, t.Records, records), producer.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
