package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"shipper/spool"
)

// The JSON of `shipper spool ls` and `verify`: names and units stay as they are.

type segmentJSON struct {
	Number    uint32 `json:"number"`
	Name      string `json:"name"`
	Bytes     int64  `json:"bytes"`
	DiskBytes int64  `json:"disk_bytes"`
	LiveBytes int64  `json:"live_bytes"`
	Batches   int    `json:"batches"`
}

type identityJSON struct {
	From       uint64 `json:"from"`
	Partition  int32  `json:"partition"`
	ProducerID int64  `json:"producer_id"`
	Epoch      int16  `json:"epoch"`
}

type laneJSON struct {
	Lane           uint32        `json:"lane"`
	Block          string        `json:"source"`
	Topic          string        `json:"topic"`
	Slot           uint32        `json:"slot"`
	Head           uint64        `json:"head"`
	Next           uint64        `json:"next"`
	PendingBatches int           `json:"pending_batches"`
	PendingBytes   int64         `json:"pending_bytes"`
	OldestTime     *time.Time    `json:"oldest_time,omitempty"` // newest record of the first batch that waits
	HeldBatches    int           `json:"held_batches"`
	Identity       *identityJSON `json:"identity,omitempty"`
}

type fileJSON struct {
	ID     uint64 `json:"id"`
	Block  string `json:"source"`
	Path   string `json:"path"`
	Lane   uint32 `json:"lane"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Offset int64  `json:"offset"`
}

type damageJSON struct {
	Segment uint32 `json:"segment,omitempty"`
	Byte    int64  `json:"byte"`
	Bytes   int64  `json:"bytes"`
	Lane    uint32 `json:"lane,omitempty"`
	From    uint64 `json:"from,omitempty"`
	To      uint64 `json:"to,omitempty"`
	Records uint64 `json:"records,omitempty"`
	Reason  string `json:"reason"`
}

type verifyJSON struct {
	Segments  int          `json:"segments"`
	VoidBytes int64        `json:"void_bytes"`
	Damage    []damageJSON `json:"damage"`
}

type spoolJSON struct {
	SpoolID  string        `json:"spool_id"`
	Segments []segmentJSON `json:"segments"`
	Lanes    []laneJSON    `json:"lanes"`
	Files    []fileJSON    `json:"files"`
	Damage   []damageJSON  `json:"damage"`
}

func spoolView(in *spool.Inspection) spoolJSON {
	v := spoolJSON{SpoolID: hex.EncodeToString(in.SpoolID[:]), Segments: []segmentJSON{}, Lanes: []laneJSON{}, Files: []fileJSON{}, Damage: damageView(in)}
	for _, s := range in.Segments {
		v.Segments = append(v.Segments, segmentJSON{s.Number, s.Name, s.Bytes, s.DiskBytes, s.LiveBytes, s.Batches})
	}
	for i := range in.Lanes {
		v.Lanes = append(v.Lanes, laneView(&in.Lanes[i]))
	}
	for _, s := range in.Sources {
		v.Files = append(v.Files, fileJSON{s.ID, s.Block, s.Path, s.Lane, s.Dev, s.Ino, s.Offset})
	}
	return v
}

func laneView(l *spool.LaneInfo) laneJSON {
	pending := l.Pending()
	v := laneJSON{Lane: l.ID, Block: l.Block, Topic: l.Topic, Slot: l.Slot, Head: l.Head, Next: l.Next,
		PendingBatches: len(pending), PendingBytes: l.PendingBytes, HeldBatches: len(l.Held)}
	if len(pending) > 0 {
		t := time.UnixMilli(pending[0].MaxTime).UTC()
		v.OldestTime = &t
	}
	for _, id := range l.Identities { // the one that covers the head
		if v.Identity == nil || id.From <= l.Head {
			v.Identity = &identityJSON{id.From, id.Partition, id.ProducerID, id.Epoch}
		}
	}
	return v
}

func damageView(in *spool.Inspection) []damageJSON {
	all := []damageJSON{}
	for _, d := range in.Damage {
		all = append(all, damageJSON{d.Segment, d.Position, d.Bytes, d.Lane, d.From, d.To, d.Records, d.Reason})
	}
	return all
}

func verifyView(in *spool.Inspection) verifyJSON {
	return verifyJSON{Segments: len(in.Segments), VoidBytes: in.VoidBytes, Damage: damageView(in)}
}

func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printSpool is for reading; programs take --json.
func printSpool(out io.Writer, in *spool.Inspection) {
	v := spoolView(in)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SEGMENT\tBYTES\tON DISK\tTO SEND\tBATCHES")
	for _, s := range v.Segments {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\n", s.Number, s.Bytes, s.DiskBytes, s.LiveBytes, s.Batches)
	}
	fmt.Fprintln(w, "\nLANE\tSOURCE\tTOPIC\tHEAD\tNEXT\tBATCHES\tBYTES\tOLDEST\tPARTITION\tPRODUCER\tEPOCH")
	for _, l := range v.Lanes {
		oldest, partition, producer, epoch := "-", "-", "-", "-"
		if l.OldestTime != nil {
			oldest = l.OldestTime.Format(time.RFC3339)
		}
		if id := l.Identity; id != nil && id.Partition >= 0 {
			partition = fmt.Sprint(id.Partition)
		}
		if id := l.Identity; id != nil && id.ProducerID >= 0 {
			producer, epoch = fmt.Sprint(id.ProducerID), fmt.Sprint(id.Epoch)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n",
			l.Lane, l.Block, l.Topic, l.Head, l.Next, l.PendingBatches, l.PendingBytes, oldest, partition, producer, epoch)
	}
	fmt.Fprintln(w, "\nFILE\tSOURCE\tLANE\tOFFSET\tPATH")
	for _, f := range v.Files {
		fmt.Fprintf(w, "%d\t%s\t%d\t%d\t%q\n", f.ID, f.Block, f.Lane, f.Offset, f.Path)
	}
	_ = w.Flush() // the buffer below keeps the error
	for _, d := range in.Damage {
		fmt.Fprintf(out, "\ndamaged: %s\n", damageText(&d))
	}
}
