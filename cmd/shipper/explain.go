// `shipper explain FILE`: why a file is read or not, and how far its lines are.
//
//	running agent: GET /explain on its admin socket -> explainReply -> text or JSON
//	no agent:      config + spool.Inspect -> pipeline.Survey -> explainReply
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"shipper/pipeline"
	"shipper/sink/kafka"
	"shipper/spool"
	"shipper/tail"
)

// explainWait bounds how long a running agent may take to answer.
const explainWait = 10 * time.Second

// explainReply is the JSON of GET /explain and of `explain --json`; a name, once published, stays.
type explainReply struct {
	Agent   string          `json:"agent"` // running, down
	Path    string          `json:"path"`
	Real    string          `json:"real_path,omitempty"` // if symlinks lead elsewhere
	Problem string          `json:"problem,omitempty"`   // why the path cannot be looked at
	Kind    string          `json:"kind,omitempty"`
	Device  uint64          `json:"device,omitempty"`
	Inode   uint64          `json:"inode,omitempty"`
	Size    int64           `json:"size"` // bytes
	ModTime *time.Time      `json:"mod_time,omitempty"`
	Verdict string          `json:"verdict"`
	NoBoot  bool            `json:"boot_time_unknown,omitempty"` // a file that a power cut left shorter is read again from its start
	Sources []explainSource `json:"sources"`
}

// explainSource is how one source of the config sees the file.
type explainSource struct {
	Source     string       `json:"source"`
	Pattern    string       `json:"matched_by,omitempty"`
	ExcludedBy string       `json:"excluded_by,omitempty"`
	CopyOf     string       `json:"copy_of,omitempty"`     // it is not read as long as this file begins with all that is in it
	RotationOf string       `json:"rotation_of,omitempty"` // the log that it is named after, if no pattern matches it: it is read if it holds what was not read of that
	File       *explainFile `json:"file,omitempty"`
}

// explainFile is a file that is known. Offsets are bytes of the file; -1: not known now.
type explainFile struct {
	ID          uint64     `json:"id"`
	Path        string     `json:"path"`
	At          string     `json:"renamed_to,omitempty"`
	Fingerprint string     `json:"fingerprint"`
	State       string     `json:"state"`
	Error       string     `json:"error,omitempty"`
	TakenFrom   string     `json:"taken_over_from,omitempty"`
	Size        int64      `json:"size"`
	Reserved    int64      `json:"reserved,omitempty"`    // bytes of it at the end: room that its writer fills later
	PassedOver  int64      `json:"passed_over,omitempty"` // bytes at the start that were passed over when it was found; offsets are -1 while nothing behind them is read
	Read        int64      `json:"read"`
	Spooled     int64      `json:"spooled"`
	Sent        int64      `json:"sent"`
	Acked       int64      `json:"acked"`
	LagBytes    int64      `json:"lag_bytes"`   // size - reserved - acked, or - spooled while acked is not known
	LagSeconds  float64    `json:"lag_seconds"` // age of the oldest line that is not acked, as far as known
	Lane        *laneReply `json:"lane,omitempty"`
}

type laneReply struct {
	Lane       uint32 `json:"lane"`
	Topic      string `json:"topic"`
	Slot       uint32 `json:"slot"`
	Partition  int32  `json:"partition"`   // -1: none chosen yet
	LastOffset int64  `json:"last_offset"` // Kafka's, of the last record of the lane; -1: not known
	Waits      string `json:"waits_for,omitempty"`

	ByKey []keyedReply `json:"by_key,omitempty"` // records go to partitions by key: instead of slot, partition and last_offset, which are -1
}

// keyedReply is one of the lanes that the records of a file may be in.
type keyedReply struct {
	Lane       uint32 `json:"lane"`
	Partition  int32  `json:"partition"`
	LastOffset int64  `json:"last_offset"` // -1: not known
	Waits      string `json:"waits_for,omitempty"`
}

// byKey makes l the answer for a file whose records go by key.
func (l *laneReply) byKey(lanes []keyedReply) {
	if len(lanes) > 0 {
		l.ByKey, l.Partition, l.LastOffset, l.Slot, l.Waits = lanes, -1, -1, 0, ""
	}
}

// explain puts together what is known. far is by source id; nil: no agent runs.
func explain(e tail.Explained, far map[uint64]pipeline.FileProgress, now time.Time) explainReply {
	r := explainReply{Agent: "running", Path: e.Path, Problem: e.Problem, Kind: e.Kind, Device: e.Dev, Inode: e.Ino, Size: e.Size, Sources: []explainSource{}, NoBoot: e.NoBoot}
	if e.Real != e.Path {
		r.Real = e.Real
	}
	if !e.ModTime.IsZero() {
		t := e.ModTime.UTC()
		r.ModTime = &t
	}
	for _, b := range e.Blocks {
		s := explainSource{Source: b.Block, Pattern: b.Pattern, ExcludedBy: b.Exclude, CopyOf: b.CopyOf}
		if b.Pattern == "" {
			s.RotationOf = b.Beside
		}
		if v := b.File; v != nil {
			p, ok := far[v.ID]
			s.File = explainView(v, p, ok, now)
		}
		r.Sources = append(r.Sources, s)
	}
	r.Verdict = verdict(&e, &r)
	return r
}

func explainView(v *tail.FileView, p pipeline.FileProgress, known bool, now time.Time) *explainFile {
	f := &explainFile{ID: v.ID, Path: v.Path, At: v.At, Fingerprint: v.Fingerprint.String(), State: v.State, Error: v.Error, TakenFrom: v.WasBlock,
		Size: v.Size, Reserved: v.Room, Read: v.Offset, Spooled: -1, Sent: -1, Acked: -1}
	base := v.Offset
	if known {
		f.Spooled, f.Sent, f.Acked = p.Spooled, p.Sent, p.Acked
		f.Lane = &laneReply{Lane: p.Lane, Topic: p.Topic, Slot: p.Slot, Partition: p.Partition, LastOffset: p.LastOffset, Waits: p.Waits}
		var lanes []keyedReply
		for _, k := range p.Keyed {
			lanes = append(lanes, keyedReply(k))
		}
		f.Lane.byKey(lanes)
		if base = p.Acked; base < 0 {
			base = p.Spooled
		}
	}
	if f.LagBytes = max(0, v.Size-v.Room-base); f.LagBytes > 0 {
		oldest := p.Oldest
		if oldest == 0 {
			oldest = now.Sub(v.ChangedAt) // nothing of it is spooled: it has waited since it changed, at least
		}
		f.LagSeconds = max(0, oldest.Seconds())
	}
	f.passOver(v)
	return f
}

// passOver takes back what looks like progress and is none.
func (f *explainFile) passOver(v *tail.FileView) {
	if f.PassedOver = v.PassedOver; f.PassedOver > 0 && f.Read <= f.PassedOver {
		f.Read, f.Spooled, f.Sent, f.Acked = -1, -1, -1, -1
	}
}

// verdict is the answer in one sentence.
func verdict(e *tail.Explained, r *explainReply) string {
	excluded := ""
	for _, s := range r.Sources {
		switch {
		case s.Pattern != "" && s.ExcludedBy == "" && e.Kind != "" && e.Kind != "regular file": // what was there before may be known
			return fmt.Sprintf("not read: it is a %s, not a regular file", e.Kind)
		case s.Pattern != "" && s.ExcludedBy != "":
			excluded = fmt.Sprintf("not read: source %s matches it by %s and excludes it by %s", s.Source, s.Pattern, s.ExcludedBy)
		case s.File != nil && s.File.State == "not found":
			return fmt.Sprintf("was read by source %s up to offset %d and is not found any more", s.Source, s.File.Read)
		case s.File != nil && s.ExcludedBy == "":
			return fmt.Sprintf("belongs to source %s: %s", s.Source, s.File.State)
		}
	}
	switch {
	case e.Own:
		return "not read: it is the agent's own log or in its spool"
	case e.Problem != "":
		return "not read: " + e.Problem
	case excluded != "":
		return excluded
	}
	for _, s := range r.Sources {
		if s.CopyOf != "" {
			return fmt.Sprintf("not read: source %s takes it for a copy of %s, which begins with all that is in it", s.Source, s.CopyOf)
		}
		if s.Pattern != "" {
			return fmt.Sprintf("matched by source %s and not found by a scan yet%s", s.Source, unlisted(e.Path))
		}
	}
	for _, s := range r.Sources {
		if s.RotationOf != "" {
			return fmt.Sprintf("not read so far: no pattern matches it; it is named as a rotation of %s, which source %s reads, and is looked into for what was not read of that", s.RotationOf, s.Source)
		}
	}
	return "not read: no pattern of any source matches it"
}

// unlisted says which directory above path keeps a scan from finding it, if one does: to open a file takes less than to find it.
func unlisted(path string) string {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if d, err := os.Open(dir); err == nil {
			_ = d.Close() // only opened
		} else if errors.Is(err, fs.ErrPermission) {
			return fmt.Sprintf(": the directory %s cannot be listed, permission denied", dir)
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// writeExplain answers GET /explain?path=...
func writeExplain(w http.ResponseWriter, r *http.Request, agent *pipeline.Agent) {
	path := r.URL.Query().Get("path")
	if !filepath.IsAbs(path) {
		http.Error(w, "path must be absolute", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), explainWait)
	defer cancel()
	e, far, err := agent.Explain(ctx, filepath.Clean(path))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = writeJSON(w, explain(e, far, time.Now()))
}

func (c *cli) explainCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "explain FILE --config FILE",
		Short: "Say why a file is read or not, and how far its lines are",
		Long: `Ask the running agent, through its admin socket, about one file: which source matches it or what excludes it, its identity,
its size, how far it is read, spooled, sent and acknowledged, how far behind it is, its partition and what went wrong last.
Without a running agent the answer comes from the config and the spool, and says so. Changes nothing.`,
	}
	path := cmd.Flags().StringP("config", "c", "", "path of the YAML config file")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *path == "" {
			return fmt.Errorf("--config FILE is required; see `%s --help`", cmd.CommandPath())
		}
		return cobra.ExactArgs(1)(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.started = true
		cfg, err := LoadConfig(*path)
		if err != nil {
			return err
		}
		file, err := filepath.Abs(args[0])
		if err != nil {
			return err
		}
		r, err := askAgent(cmd.Context(), cfg, file)
		if err != nil {
			return err
		}
		if r == nil {
			if r, err = explainOffline(cfg, file); err != nil {
				return err
			}
		}
		if asJSON {
			return writeJSON(c.stdout, r)
		}
		printExplain(c.stdout, r)
		return nil
	}
	return cmd
}

// askAgent asks the running agent; nil: none listens.
func askAgent(ctx context.Context, cfg *Config, file string) (*explainReply, error) {
	r := &explainReply{}
	running, err := callAgent(ctx, cfg.Admin.Socket, http.MethodGet, "/explain?path="+url.QueryEscape(file), r)
	if err != nil || !running {
		return nil, err
	}
	return r, nil
}

// explainOffline answers from the config and the spool.
func explainOffline(cfg *Config, file string) (*explainReply, error) {
	survey, in, err := surveyOf(cfg)
	if err != nil {
		return nil, err
	}
	r := explain(survey.Explain(file), nil, time.Now())
	r.Agent = "down"
	if in == nil {
		return &r, nil
	}
	for i := range r.Sources {
		if f := r.Sources[i].File; f != nil && f.ID != 0 {
			fromSpool(f, in)
		}
	}
	return &r, nil
}

// fromSpool adds what the spool knows of a file. How much of it is in Kafka is known only if all of its lanes are.
func fromSpool(f *explainFile, in *spool.Inspection) {
	i := slices.IndexFunc(in.Sources, func(s spool.SourceState) bool { return s.ID == f.ID })
	if i < 0 {
		return
	}
	s := &in.Sources[i]
	f.Spooled = s.Offset
	i = slices.IndexFunc(in.Lanes, func(l spool.LaneInfo) bool { return l.ID == s.Lane })
	if i < 0 {
		return
	}
	home := &in.Lanes[i]
	f.Lane = &laneReply{Lane: home.ID, Topic: home.Topic, Slot: home.Slot, Partition: -1, LastOffset: lastOffset(home)}
	if v := laneView(home); v.Identity != nil {
		f.Lane.Partition = v.Identity.Partition
	}
	acked, lanes := home.Head >= home.Next, []keyedReply(nil)
	if home.Slot&kafka.KeyedSlot != 0 {
		for i := range in.Lanes {
			l := &in.Lanes[i]
			if l.Block != home.Block || l.Topic != home.Topic || l.Slot&kafka.KeyedSlot == 0 {
				continue
			}
			acked = acked && l.Head >= l.Next
			lanes = append(lanes, keyedReply{Lane: l.ID, Partition: int32(l.Slot &^ kafka.KeyedSlot), LastOffset: lastOffset(l)})
		}
		slices.SortFunc(lanes, func(a, b keyedReply) int { return cmp.Compare(a.Partition, b.Partition) })
	}
	f.Lane.byKey(lanes)
	if acked {
		f.Sent, f.Acked = s.Offset, s.Offset
	}
}

// lastOffset is Kafka's, of the last record of the lane; -1: not known.
func lastOffset(l *spool.LaneInfo) int64 {
	if l.LastAck.Count == 0 {
		return -1
	}
	return l.LastAck.BaseOffset + int64(l.LastAck.Count) - 1
}

// surveyOf looks at files and spool as a start would find them. The inspection is nil if there is no spool yet.
func surveyOf(cfg *Config) (*tail.Survey, *spool.Inspection, error) {
	p, err := configToPipeline(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	in, err := spool.Inspect(spool.Options{Dir: filepath.Clean(cfg.Spool.Dir), Blocks: p.Blocks()})
	if err != nil {
		in = nil // none yet, or none that can be read: then a start would say so
	}
	survey, err := pipeline.Survey(p, in)
	return survey, in, err
}

func printExplain(out io.Writer, r *explainReply) {
	fmt.Fprintf(out, "%s\n  %s\n", r.Path, r.Verdict)
	if r.Agent != "running" {
		fmt.Fprintln(out, "  no agent answers: this is what the config and the spool say")
	}
	if r.NoBoot {
		fmt.Fprintln(out, "  when this machine was started cannot be told (no clock that runs while it is off): a file that a power cut left shorter is read again from its start")
	}
	if r.Real != "" {
		fmt.Fprintf(out, "  leads to   %s\n", r.Real)
	}
	if r.Problem == "" {
		fmt.Fprintf(out, "  now        %s, %d bytes, device %d inode %d, written %s\n", r.Kind, r.Size, r.Device, r.Inode, r.ModTime.Format(time.RFC3339))
	}
	for _, s := range r.Sources {
		if s.Pattern == "" && s.File == nil {
			fmt.Fprintf(out, "  source %s: does not match\n", s.Source)
			continue
		}
		fmt.Fprintf(out, "  source %s\n", s.Source)
		if s.Pattern != "" {
			fmt.Fprintf(out, "    matched by   %s\n", s.Pattern)
		}
		if s.ExcludedBy != "" {
			fmt.Fprintf(out, "    excluded by  %s\n", s.ExcludedBy)
		}
		if s.File != nil {
			printExplainFile(out, s.File)
		}
	}
}

func printExplainFile(out io.Writer, f *explainFile) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "    %-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	offset := func(n int64) string {
		if n < 0 {
			return "not known"
		}
		return fmt.Sprint(n)
	}
	line("state", "%s", f.State)
	line("seen at", "%s", f.Path)
	if f.At != "" {
		line("renamed to", "%s", f.At)
	}
	line("identity", "%s, source id %d", f.Fingerprint, f.ID)
	if f.TakenFrom != "" {
		line("taken over", "from source %s, which the config does not have any more", f.TakenFrom)
	}
	line("size", "%d", f.Size)
	if f.Reserved > 0 {
		line("reserved", "its last %d bytes: room that its writer fills later", f.Reserved)
	}
	if f.PassedOver > 0 {
		line("passed over", "its first %d bytes, which were there when it was found (start_at, ignore_older): they are not sent", f.PassedOver)
	}
	if f.PassedOver > 0 && f.Read < 0 {
		return // the rest would be the offset that it begins at
	}
	line("read", "%s", offset(f.Read))
	line("spooled", "%s", offset(f.Spooled))
	line("sent", "%s", offset(f.Sent))
	line("acked", "%s", offset(f.Acked))
	line("lag", "%d bytes, %.1f s", f.LagBytes, f.LagSeconds)
	if l := f.Lane; l != nil && len(l.ByKey) > 0 {
		line("topic", "%s, by key: its records may be in any of %d lanes", l.Topic, len(l.ByKey))
		for _, k := range l.ByKey {
			text := fmt.Sprintf("%d, lane %d, last Kafka offset %s", k.Partition, k.Lane, offset(k.LastOffset))
			if k.Waits != "" {
				text += ", waits for " + k.Waits
			}
			line("  partition", "%s", text)
		}
	} else if l != nil {
		line("topic", "%s, partition %s, lane %d, last Kafka offset %s", l.Topic, offset(int64(l.Partition)), l.Lane, offset(l.LastOffset))
		if l.Waits != "" {
			line("waits for", "%s", l.Waits)
		}
	}
	if f.Error != "" {
		line("last error", "%s", f.Error)
	}
}
