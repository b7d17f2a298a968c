// Command nullbroker is a Kafka-protocol broker that counts batches and keeps none, for measuring producers.
//
//	go run ./benchmarks/nullbroker -addr 127.0.0.1:9092 -http 127.0.0.1:9093 -verify
//
// The first line on standard output is {"addr":..., "http":...}; the last, after SIGTERM or SIGINT, holds the totals. HTTP:
// GET /stats gives the totals, POST /down cuts the broker off with its state kept, POST /up brings it back.
// With -kfake it is franz-go's in-memory broker instead, counted by its log ends: slower, keeps every record, but other code.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"shipper/benchmarks/internal/broker"
)

// server is what both brokers can do.
type server interface {
	Addr() string
	Totals() broker.Totals
	Close()
}

// breakable is the null broker only.
type breakable interface {
	Down()
	Up() error
}

func main() {
	var o broker.Options
	flag.StringVar(&o.Addr, "addr", "127.0.0.1:0", "address to serve Kafka on")
	flag.IntVar(&o.Partitions, "partitions", 4, "partitions of every topic")
	flag.BoolVar(&o.Verify, "verify", false, "check CRCs and that numbered lines come once and in order")
	flag.DurationVar(&o.AckDelay, "ack-delay", 0, "hold back each produce answer")
	flag.IntVar(&o.BatchBytesMax, "batch-bytes-max", 0, "refuse larger batches; 0 is Kafka's default, 1048588")
	control := flag.String("http", "127.0.0.1:0", "address of /stats, /down and /up")
	useKfake := flag.Bool("kfake", false, "run franz-go's kfake instead; ignores the other settings but -addr and -partitions")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, o, *control, *useKfake); err != nil {
		fmt.Fprintln(os.Stderr, "nullbroker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o broker.Options, control string, useKfake bool) error {
	b, err := listen(o, useKfake)
	if err != nil {
		return err
	}
	defer b.Close()
	ln, err := net.Listen("tcp", control)
	if err != nil {
		return err
	}
	defer ln.Close()
	go http.Serve(ln, controlHandler(b)) //nolint:errcheck // ends with the process

	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(map[string]string{"addr": b.Addr(), "http": ln.Addr().String()}); err != nil {
		return err
	}
	<-ctx.Done()
	return out.Encode(b.Totals())
}

func listen(o broker.Options, useKfake bool) (server, error) {
	if useKfake {
		return broker.ListenKfake(o)
	}
	return broker.Listen(o)
}

func controlHandler(b server) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(b.Totals()); err != nil {
			fmt.Fprintln(os.Stderr, "nullbroker: answer /stats:", err)
		}
	})
	if b, ok := b.(breakable); ok {
		mux.HandleFunc("POST /down", func(http.ResponseWriter, *http.Request) { b.Down() })
		mux.HandleFunc("POST /up", func(w http.ResponseWriter, _ *http.Request) {
			if err := b.Up(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	return mux
}
