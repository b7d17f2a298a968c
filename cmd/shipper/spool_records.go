package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"shipper/sink/kafka"
	"shipper/spool"
)

// recordBytesMax bounds what one batch may expand to.
const recordBytesMax = 256 << 20

// recordJSON is one line of `shipper spool export`. Of Value and ValueBytes one is there, as of Key and KeyBytes if the record has a key.
type recordJSON struct {
	Lane       uint32       `json:"lane"`
	Topic      string       `json:"topic"`
	Index      uint64       `json:"index"`
	Time       string       `json:"time"`
	Acked      bool         `json:"acked,omitempty"`
	Key        *string      `json:"key,omitempty"`
	KeyBytes   []byte       `json:"key_base64,omitempty"`
	Headers    []headerJSON `json:"headers,omitempty"`
	Value      *string      `json:"value,omitempty"`
	ValueBytes []byte       `json:"value_base64,omitempty"`
}

// headerJSON is one header of a record, in its order: a key may come twice.
type headerJSON struct {
	Key        string  `json:"key"`
	Value      *string `json:"value,omitempty"`
	ValueBytes []byte  `json:"value_base64,omitempty"`
}

// textOf is b as a string, or as bytes if it is not UTF-8.
func textOf(b []byte) (*string, []byte) {
	if !utf8.Valid(b) {
		return nil, b
	}
	s := string(b)
	return &s, nil
}

func viewRecord(l *spool.LaneInfo, index uint64, r *kafka.Record) recordJSON {
	v := recordJSON{Lane: l.ID, Topic: l.Topic, Index: index, Time: time.UnixMilli(r.Time).UTC().Format("2006-01-02T15:04:05.000Z07:00"), Acked: index < l.Head}
	if r.HasKey {
		v.Key, v.KeyBytes = textOf(r.Key)
	}
	r.EachHeader(func(key string, value []byte) {
		h := headerJSON{Key: key}
		h.Value, h.ValueBytes = textOf(value)
		v.Headers = append(v.Headers, h)
	})
	v.Value, v.ValueBytes = textOf(r.Value)
	return v
}

// spoolCat prints the values, each with a line feed.
func (c *cli) spoolCat(a *spoolArgs) error {
	if a.json {
		return c.spoolExport(a)
	}
	return c.eachRecord(a, func(out io.Writer, _ *spool.LaneInfo, _ uint64, r *kafka.Record) error {
		_, err := out.Write(append(r.Value, '\n'))
		return err
	})
}

func (c *cli) spoolExport(a *spoolArgs) error {
	return c.eachRecord(a, func(out io.Writer, l *spool.LaneInfo, index uint64, r *kafka.Record) error {
		v := viewRecord(l, index, r)
		e := json.NewEncoder(out)
		e.SetEscapeHTML(false)
		return e.Encode(&v)
	})
}

type recordFunc func(out io.Writer, l *spool.LaneInfo, index uint64, r *kafka.Record) error

// looksMax bounds how often records are looked for again. What is damaged costs a look, what an agent at work has moved, too.
const looksMax = 10

// recordLook is what records are read from: a look at a spool, and a newer one once it turns out that an agent has cut off, given
// up or used again what the first one saw.
type recordLook struct {
	dir  string
	in   *spool.Inspection
	rd   *spool.Reader
	left int // further looks
}

func newRecordLook(dir string) (*recordLook, error) {
	v := &recordLook{dir: dir, left: looksMax}
	return v, v.look()
}

func (v *recordLook) look() (err error) {
	if v.in, err = spool.Inspect(spool.Options{Dir: v.dir}); err != nil {
		return err
	}
	v.rd = v.in.NewReader()
	return nil
}

// again is where the records of refs, of one lane, are now.
func (v *recordLook) again(l *spool.LaneInfo, refs []spool.Ref) (*spool.LaneInfo, []spool.Ref, error) {
	v.left--
	if err := v.rd.Close(); err != nil {
		return l, nil, err
	}
	if err := v.look(); err != nil {
		return l, nil, err
	}
	i := slices.IndexFunc(v.in.Lanes, func(now spool.LaneInfo) bool { return now.ID == l.ID })
	if i < 0 {
		return l, nil, nil
	}
	l = &v.in.Lanes[i]
	var now []spool.Ref
	for _, ref := range l.Held {
		for len(refs) > 0 && refs[0].Next() <= ref.First {
			refs = refs[1:]
		}
		if len(refs) > 0 && refs[0].First < ref.Next() && !l.Dropped(ref) {
			now = append(now, ref)
		}
	}
	return l, now, nil
}

// eachRecord goes through the lanes that were asked for, in order. A batch that cannot be read is said on standard error and
// makes the exit code 1; one that a running agent has delivered and given up meanwhile is no error.
func (c *cli) eachRecord(a *spoolArgs, fn recordFunc) error {
	v, err := newRecordLook(a.dir)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(c.stdout)
	matched, unread := false, 0
	lanes := v.in.Lanes
	for i := range lanes {
		l := &lanes[i]
		if !a.wants(l) {
			continue
		}
		matched = true
		refs := l.Pending()
		if a.acked {
			refs = l.Held
		}
		n, err := c.laneRecords(out, v, l, refs, fn)
		unread += n
		if err != nil {
			return errors.Join(err, v.rd.Close())
		}
	}
	if err := errors.Join(v.rd.Close(), out.Flush()); err != nil {
		return err
	}
	switch {
	case !matched && a.only != "":
		return fmt.Errorf("%s has no lane or topic %q; see `shipper spool ls`", a.dir, a.only)
	case unread > 0:
		return fmt.Errorf("%s: %d batches could not be read", a.dir, unread)
	}
	return nil
}

// laneRecords reads the batches at refs. One that is damaged, or gone although it was to be sent, is looked for again: what is
// damaged twice at one place is.
func (c *cli) laneRecords(out io.Writer, v *recordLook, l *spool.LaneInfo, refs []spool.Ref, fn recordFunc) (unread int, err error) {
	var batch, raw []byte
	from, twice := uint64(0), spool.Ref{} // records below from were read; the batch that was looked for again
	for len(refs) > 0 {
		ref := refs[0]
		batch, err = v.rd.ReadBatch(batch[:0], ref)
		damaged, isDamage := errors.AsType[*spool.CorruptionError](err)
		if isDamage && ref != twice && v.left > 0 && (!damaged.Released() || ref.First >= l.Head) {
			from, twice = max(from, ref.First), ref
			if l, refs, err = v.again(l, refs); err != nil {
				return unread, err
			}
			continue
		}
		refs = refs[1:]
		switch {
		case isDamage && damaged.Released():
			continue
		case err == nil:
			raw, err = batchRecords(out, batch, raw, l, ref, from, fn)
		}
		if isDamage || errors.Is(err, kafka.ErrMalformed) {
			unread++
			fmt.Fprintf(c.stderr, "lane %d, records %d to %d: %v\n", l.ID, ref.First, ref.Next()-1, err)
			continue
		}
		if err != nil {
			return unread, err
		}
	}
	return unread, nil
}

// batchRecords decodes one batch, of which records below from are left out; raw is a buffer that it returns for the next.
func batchRecords(out io.Writer, batch, raw []byte, l *spool.LaneInfo, ref spool.Ref, from uint64, fn recordFunc) ([]byte, error) {
	h, err := kafka.ParseHeader(batch)
	if err != nil {
		return raw, err
	}
	raw, err = kafka.Decompress(raw[:0], batch[kafka.HeaderBytes:], h.Codec(), recordBytesMax)
	if err != nil {
		return raw, err
	}
	rest := raw
	for i := range uint64(ref.Count) {
		var r kafka.Record
		if r, rest, err = kafka.NextRecord(rest, h.FirstTime); err != nil {
			return raw, err
		}
		if ref.First+i < from {
			continue
		}
		if err := fn(out, l, ref.First+i, &r); err != nil {
			return raw, err
		}
	}
	return raw, nil
}
