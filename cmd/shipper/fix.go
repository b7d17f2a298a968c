package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"shipper/pipeline"
	"shipper/sink/kafka"
)

// `shipper fix lane`: decisions that the agent does not take by itself.
//
//	fix lane                  GET /lanes                     what waits, and for what
//	fix lane LANE adopt       POST /lanes/adopt?lane=LANE    the agent writes the decision into its spool and goes on
//
// LANE is TOPIC/SLOT, a lane's number, or `all`: every lane that waits for this decision.

// waitingLane is one lane in the JSON of GET /lanes and POST /lanes/adopt; a name, once published, stays.
type waitingLane struct {
	Lane      uint32 `json:"lane"`
	Source    string `json:"source"`
	Topic     string `json:"topic"`
	Slot      uint32 `json:"slot"`
	Partition int32  `json:"partition"`
	Head      uint64 `json:"head"`
	Batches   int    `json:"batches_waiting"`
	Waits     string `json:"waits_for,omitempty"`
	Advice    string `json:"advice,omitempty"`
}

func waitingLanes(views []kafka.LaneView) []waitingLane {
	out := make([]waitingLane, 0, len(views))
	for _, v := range views {
		out = append(out, waitingLane{Lane: v.ID, Source: v.Source, Topic: v.Topic, Slot: v.Slot, Partition: v.Partition, Head: v.Head, Batches: v.Batches,
			Waits: v.Waits.String(), Advice: v.Waits.Advice()})
	}
	return out
}

func handleLanes(mux *http.ServeMux, agent *pipeline.Agent) {
	reply := func(w http.ResponseWriter, views []kafka.LaneView) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(waitingLanes(views)) // an error is the client's, who went away
	}
	mux.HandleFunc("GET /lanes", func(w http.ResponseWriter, r *http.Request) {
		views, err := agent.Lanes(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		reply(w, views)
	})
	mux.HandleFunc("POST /lanes/adopt", func(w http.ResponseWriter, r *http.Request) {
		if !overSocket(r) {
			http.Error(w, "decisions are taken over the admin socket only", http.StatusForbidden)
			return
		}
		views, err := adoptLanes(r.Context(), agent, r.URL.Query().Get("lane"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		reply(w, views)
	})
}

// overSocket says that a request came over the unix socket, which only the agent's user may open; the port is open to every
// local process and to what a browser is made to send.
func overSocket(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && addr.Network() == "unix"
}

// adoptLanes has the lanes of that name adopt the cluster that answers, and returns them.
func adoptLanes(ctx context.Context, agent *pipeline.Agent, name string) ([]kafka.LaneView, error) {
	views, err := agent.Lanes(ctx)
	if err == nil {
		views, err = chooseLanes(views, name)
	}
	if err != nil {
		return nil, err
	}
	for _, v := range views {
		if err := agent.AdoptCluster(ctx, v.ID); err != nil {
			return nil, err
		}
	}
	return views, nil
}

// chooseLanes finds the lanes that a person means by name.
func chooseLanes(views []kafka.LaneView, name string) (chosen []kafka.LaneView, err error) {
	if name == "all" {
		for _, v := range views {
			if v.Waits == kafka.CauseOtherCluster {
				chosen = append(chosen, v)
			}
		}
		if len(chosen) == 0 {
			return nil, errors.New("no lane waits for another cluster to be adopted")
		}
		return chosen, nil
	}
	topic, slot, named := strings.Cut(name, "/")
	for _, v := range views {
		if named && v.Topic == topic && kafka.SlotName(v.Slot) == slot || !named && strconv.Itoa(int(v.ID)) == name {
			chosen = append(chosen, v)
		}
	}
	switch len(chosen) {
	case 1:
		return chosen, nil
	case 0:
		return nil, fmt.Errorf("there is no lane %q; `shipper fix lane` lists them", name)
	}
	var ids []string
	for _, v := range chosen {
		ids = append(ids, fmt.Sprintf("%d (source %s)", v.ID, v.Source))
	}
	return nil, fmt.Errorf("%q is the name of %d lanes; give the number of one: %s", name, len(chosen), strings.Join(ids, ", "))
}

func (c *cli) fixCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fix",
		Short: "Decide what a running agent does not decide by itself",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("no command given; see `shipper fix --help`")
		},
	}
	cmd.AddCommand(c.fixLaneCommand())
	return cmd
}

func (c *cli) fixLaneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lane [LANE adopt] --config FILE",
		Short: "List the lanes, or have one go on in the cluster that answers now",
		Long: `Without LANE: list the lanes of the running agent and what they wait for.

LANE adopt: when brokers answer with another cluster id than before, a lane is held, since nobody but you knows whether
they are the right ones. "adopt" sends what waits to the cluster that answers now, from the first line that the old one
did not acknowledge. LANE is TOPIC/SLOT, a lane's number, or "all".

Exit codes: 0 done, 1 the agent does not run or says why not, 2 usage or config.`,
	}
	path := cmd.Flags().StringP("config", "c", "", "path of the agent's config file")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *path == "" {
			return fmt.Errorf("--config FILE is required; see `%s --help`", cmd.CommandPath())
		}
		if len(args) != 0 && (len(args) != 2 || args[1] != "adopt") {
			return fmt.Errorf("want no argument, or LANE adopt; see `%s --help`", cmd.CommandPath())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.started = true
		cfg, err := LoadConfig(*path)
		if err != nil {
			return err
		}
		return c.fixLane(cmd.Context(), cfg.Admin.Socket, args)
	}
	return cmd
}

// mustCall is callAgent for what only a running agent can do.
func mustCall(ctx context.Context, socket, method, path string, out any) error {
	running, err := callAgent(ctx, socket, method, path, out)
	if err == nil && !running {
		err = fmt.Errorf("no agent answers at %s: is it running?", socket)
	}
	return err
}

func (c *cli) fixLane(ctx context.Context, socket string, args []string) error {
	var lanes []waitingLane
	if len(args) == 0 {
		if err := mustCall(ctx, socket, http.MethodGet, "/lanes", &lanes); err != nil {
			return err
		}
		return c.printLanes(lanes)
	}
	if err := mustCall(ctx, socket, http.MethodPost, "/lanes/adopt?lane="+url.QueryEscape(args[0]), &lanes); err != nil {
		return err
	}
	for _, l := range lanes {
		if _, err := fmt.Fprintf(c.stdout, "lane %s/%s of source %s adopts the cluster that answers now\n", l.Topic, kafka.SlotName(l.Slot), l.Source); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) printLanes(lanes []waitingLane) error {
	t := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LANE\tNUMBER\tSOURCE\tPARTITION\tWAITS FOR\tGO ON WITH")
	for _, l := range lanes {
		waits, fix := "-", "-"
		if l.Waits != "" {
			waits = l.Waits
		}
		if l.Waits == kafka.CauseOtherCluster.String() {
			fix = fmt.Sprintf("shipper fix lane %s/%s adopt", l.Topic, kafka.SlotName(l.Slot))
		}
		fmt.Fprintf(t, "%s/%s\t%d\t%s\t%d\t%s\t%s\n", l.Topic, kafka.SlotName(l.Slot), l.Lane, l.Source, l.Partition, waits, fix)
	}
	return t.Flush()
}
