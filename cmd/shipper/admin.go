package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"shipper/pipeline"
)

// The admin interface: HTTP on a unix socket that only the agent's user may open, and on a loopback port if configured.
//
//	GET /stats              the agent's counters, JSON
//	GET /metrics            the same for Prometheus (admin_metrics.go)
//	GET /explain?path=FILE  what the agent makes of a file, JSON (explain.go)
//	GET /healthz            whether lines get through (admin_health.go)
//	GET /lanes              what each lane waits for, JSON; POST /lanes/adopt decides (fix.go)

// socketPathMax is what a unix socket's address holds on the smallest of our systems.
const socketPathMax = 103

// admin is the running interface; nil is none.
type admin struct {
	server *http.Server
	path   string
}

// listenAdmin opens what is configured. A socket left behind by a process that was killed is replaced: the spool's lock
// says that no other agent lives here.
func listenAdmin(cfg AdminConfig, agent *pipeline.Agent, log *slog.Logger) (*admin, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { writeStats(w, agent) })
	mux.HandleFunc("GET /explain", func(w http.ResponseWriter, r *http.Request) { writeExplain(w, r, agent) })
	mux.Handle("GET /metrics", metricsHandler(func() statsReply { return newStats(agent.Stats()) }))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { writeHealth(w, r, agent) })
	handleLanes(mux, agent)
	a := &admin{server: newAdminServer(mux)}
	var errs []error
	if cfg.Socket != "" && cfg.Socket != "off" {
		l, err := listenSocket(cfg.Socket)
		if err == nil {
			a.path = cfg.Socket
			go a.serve(l, log)
		}
		errs = append(errs, err)
	}
	if cfg.HTTP != "" {
		l, err := net.Listen("tcp", cfg.HTTP)
		if err == nil {
			go a.serve(l, log)
		}
		errs = append(errs, err)
	}
	return a, errors.Join(errs...)
}

func listenSocket(path string) (net.Listener, error) {
	if len(path) > socketPathMax {
		return nil, fmt.Errorf("admin socket %s: the path is longer than %d bytes; set admin.socket", path, socketPathMax)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		_ = os.Remove(path)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(path, 0o600)
}

func (a *admin) serve(l net.Listener, log *slog.Logger) {
	if err := a.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		log.Warn("the admin interface has ended", "address", l.Addr().String(), "error", err)
	}
}

func (a *admin) close() {
	if a != nil {
		_ = a.server.Close()
	}
}

// statsReply is the JSON of GET /stats; a name, once published, stays.
type statsReply struct {
	UptimeSeconds       float64 `json:"uptime_seconds"`
	LinesRead           uint64  `json:"lines_read"`
	BytesRead           uint64  `json:"bytes_read"`
	LinesSpooled        uint64  `json:"lines_spooled"`
	LinesAcked          uint64  `json:"lines_acked"`
	OldestUnacked       float64 `json:"oldest_unacked_seconds"`
	SpoolBytes          int64   `json:"spool_bytes"`
	SpoolBytesMax       int64   `json:"spool_bytes_max"`
	SpoolBytesWritten   int64   `json:"spool_bytes_written"`
	SpoolFull           bool    `json:"spool_full"`
	SpoolFullSeconds    float64 `json:"spool_full_seconds"` // 0: there is room
	HeldFiles           int64   `json:"held_files"`         // deleted, open, not read to their end
	HeldBytes           int64   `json:"held_bytes"`
	GivenUpFiles        uint64  `json:"given_up_files"`
	Syncs               int64   `json:"syncs"`
	Files               int64   `json:"files"`
	FilesOpen           int64   `json:"files_open"`
	FilesOpenMax        int64   `json:"files_open_max"`
	FilesReading        int64   `json:"files_reading"`
	FilesWaiting        int64   `json:"files_waiting"` // have unread bytes and wait for a descriptor
	FilesMissing        int64   `json:"files_missing"` // no pattern finds them any more, not forgotten yet; not what is delivered and has a compressed copy
	UnreadBytes         int64   `json:"unread_bytes"`
	IgnoredFiles        uint64  `json:"ignored_files"` // older than ignore_older when they were found
	Inotify             bool    `json:"inotify"`       // false: files are only polled
	InotifyWatches      int64   `json:"inotify_watches"`
	InotifyOverflows    uint64  `json:"inotify_overflows"`
	Truncations         uint64  `json:"truncations"`
	LostBytes           uint64  `json:"lost_bytes"`
	BatchesSent         uint64  `json:"batches_sent"`
	BatchesAcked        uint64  `json:"batches_acked"`
	Retries             uint64  `json:"retries"`
	OutOfOrderAnswers   uint64  `json:"out_of_order_answers"`
	MaybeDoubledRecords uint64  `json:"maybe_doubled_records"`
	LostRecords         uint64  `json:"lost_records"`
	DamagedRecords      uint64  `json:"damaged_records"`
	HealedRecords       uint64  `json:"healed_records"`
	OversizeLines       uint64  `json:"oversize_lines"`
	OversizeBytes       uint64  `json:"oversize_bytes_dropped"`
	NULBytes            uint64  `json:"nul_bytes_dropped"`
	ReplacedCharacters  uint64  `json:"replaced_characters"`
	LostFiles           uint64  `json:"lost_files"`
	FoundAgainFiles     uint64  `json:"found_again_files"` // of lost_files and vanished_files
	FoundAgainBytes     uint64  `json:"found_again_bytes"` // of lost_bytes
	VanishedFiles       uint64  `json:"vanished_files"`
	SkippedFiles        uint64  `json:"skipped_files"`
	UnreadableFiles     int64   `json:"unreadable_files"`
	FoundRecords        uint64  `json:"found_records"`
	Resolves            uint64  `json:"resolves"`
	Heals               uint64  `json:"heals"`
	ResentRecords       uint64  `json:"resent_records"`
	BatchesCut          uint64  `json:"batches_cut"`
	BatchesMerged       uint64  `json:"batches_merged"`
	DeadLetters         uint64  `json:"dead_letters"`
	ShiftedRecords      uint64  `json:"shifted_records"`
	NewIdentities       uint64  `json:"new_identities"`
	UnreadableTopics    int64   `json:"unreadable_topics"`

	Records        map[string]map[string]uint64 `json:"records"`         // dropped or changed, by source block and reason
	DroppedRecords uint64                       `json:"dropped_records"` // the sum of dropped
	Dropped        []droppedStat                `json:"dropped"`         // since the start, by source and reason, as in the ledger of gaps
	Sources        []sourceStat                 `json:"sources"`
}

// droppedStat counts records that are not delivered.
type droppedStat struct {
	Source  string `json:"source"`
	Reason  string `json:"reason"`
	Records uint64 `json:"records"`
}

// sourceStat is a source's part of the spool.
type sourceStat struct {
	Name       string `json:"name"`
	SpoolBytes int64  `json:"spool_bytes"`       // its lines that are still to be sent, about
	ShareBytes int64  `json:"spool_share_bytes"` // kept for them whatever others write
	Paused     bool   `json:"paused"`            // they find no room: its files wait
}

// addSpool fills in who uses the spool and what was dropped.
func (r *statsReply) addSpool(s *pipeline.Stats) {
	r.SpoolFull, r.SpoolFullSeconds = s.SpoolFullFor > 0, s.SpoolFullFor.Seconds()
	r.HeldFiles, r.HeldBytes, r.GivenUpFiles = s.Tail.HeldFiles, s.Tail.HeldBytes, s.Tail.GivenUp
	r.Dropped, r.Sources = []droppedStat{}, []sourceStat{}
	for _, d := range s.Dropped {
		r.Dropped = append(r.Dropped, droppedStat(d))
		r.DroppedRecords += d.Records
	}
	for _, x := range s.Sources {
		r.Sources = append(r.Sources, sourceStat(x))
	}
}

func writeStats(w http.ResponseWriter, agent *pipeline.Agent) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(newStats(agent.Stats()))
}

func newStats(s pipeline.Stats) statsReply {
	reply := statsReply{
		UptimeSeconds: s.Uptime.Seconds(), LinesRead: s.LinesRead, BytesRead: s.BytesRead, LinesSpooled: s.LinesSpooled,
		LinesAcked: s.Kafka.AckedRecords, OldestUnacked: s.Kafka.OldestUnacked.Seconds(),
		SpoolBytes: s.Spool.BytesUsed, SpoolBytesMax: s.Spool.BytesMax, SpoolBytesWritten: s.Spool.BytesWritten, Syncs: s.Spool.Syncs,
		Files: s.Tail.Files, FilesOpen: s.Tail.Open, FilesOpenMax: s.Tail.OpenMax, FilesReading: s.Tail.Reading,
		FilesWaiting: s.Tail.WaitingOpen, FilesMissing: s.Tail.Missing, UnreadBytes: s.Tail.UnreadBytes, IgnoredFiles: s.Tail.IgnoredFiles,
		Inotify: s.Tail.Inotify, InotifyWatches: s.Tail.Watches, InotifyOverflows: s.Tail.NotifyOverflows, Truncations: s.Tail.Truncations, LostBytes: s.Tail.LostBytes,
		BatchesSent: s.Kafka.SentBatches, BatchesAcked: s.Kafka.AckedBatches, Retries: s.Kafka.Retries, OutOfOrderAnswers: s.Kafka.Refusals,
		MaybeDoubledRecords: s.Kafka.MaybeDoubledRecords, LostRecords: s.Kafka.LostRecords, DamagedRecords: s.DamagedRecords, HealedRecords: s.Kafka.HealedRecords,
		OversizeLines: s.Tail.OversizeSplit + s.Tail.OversizeCut + s.Tail.OversizeSkipped, OversizeBytes: s.Tail.OversizeBytes, NULBytes: s.Tail.NULBytes,
		ReplacedCharacters: s.Tail.ReplacedRunes,
		LostFiles:          s.Tail.LostFiles, FoundAgainFiles: s.Tail.FoundAgainFiles, FoundAgainBytes: s.Tail.FoundAgainBytes, VanishedFiles: s.Tail.VanishedFiles, SkippedFiles: s.Tail.SkippedFiles, UnreadableFiles: s.Tail.Unreadable,
		FoundRecords: s.Kafka.FoundRecords, Resolves: s.Kafka.Resolves, Heals: s.Kafka.Heals, ResentRecords: s.Kafka.ResentRecords,
		BatchesCut: s.Kafka.CutBatches, BatchesMerged: s.Kafka.MergedBatches, DeadLetters: s.Kafka.DeadLetters, ShiftedRecords: s.Kafka.ShiftedRecords, NewIdentities: s.Kafka.NewIdentities,
		UnreadableTopics: s.Kafka.UnreadableTopics,
		Records:          s.Records,
	}
	reply.addSpool(&s)
	return reply
}
