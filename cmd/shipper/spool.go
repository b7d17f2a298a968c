// `shipper spool ls|cat|export|verify`: look into a spool, beside a running agent or on a copy. Nothing is locked or changed.
//
//	directory -> spool.Inspect -> segments, lanes, sources     ls
//	          -> batches -> records (spool_records.go)         cat, export
//	          -> spool.Verify                                  verify
package main

import (
	"bufio"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"shipper/spool"
)

// spoolArgs say which spool, and which part of it.
type spoolArgs struct {
	config string
	json   bool
	acked  bool
	dir    string
	only   string // a lane's number or a topic; empty: all
}

func (c *cli) spoolCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "spool",
		Short: "Look into a spool: segments, lanes, files, records, damage",
		Long: `Look into a spool directory, given by name or by the config that uses it. Works beside a running agent and on a copy:
nothing is locked or changed. What is shown is what was there at one moment.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("no command given; see `shipper spool --help`")
		},
	}
	cmd.AddCommand(
		c.spoolSub("ls", "List segments, lanes, and files with their cursors", false, c.spoolLs),
		c.spoolSub("cat", "Print the lines that wait, of all lanes, one lane or one topic", true, c.spoolCat),
		c.spoolSub("export", "Print the records that wait as JSON, one a line, with keys and headers", true, c.spoolExport),
		c.replayCommand(),
		c.spoolSub("verify", "Read every frame and check its checksums; exit code 1 if something is damaged", false, c.spoolVerify))
	return cmd
}

// spoolSub is one sub-command; records says that it prints some.
func (c *cli) spoolSub(name, short string, records bool, do func(*spoolArgs) error) *cobra.Command {
	a := &spoolArgs{}
	cmd := &cobra.Command{Use: name + " DIR | --config FILE", Short: short}
	cmd.Flags().StringVarP(&a.config, "config", "c", "", "take spool.dir from this config")
	most := 0 // arguments behind the directory
	if records {
		cmd.Use = name + " (DIR | --config FILE) [LANE | TOPIC]"
		cmd.Flags().BoolVar(&a.acked, "acked", false, "also what is delivered and still kept")
		most = 1
	}
	switch name {
	case "export":
	case "cat":
		cmd.Flags().BoolVar(&a.json, "json", false, "print what export prints")
	default:
		cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if a.config == "" {
			if len(args) == 0 {
				return fmt.Errorf("a spool directory or --config FILE is required; see `%s --help`", cmd.CommandPath())
			}
			a.dir, args = args[0], args[1:]
		}
		if len(args) > most {
			return fmt.Errorf("too many arguments; see `%s --help`", cmd.CommandPath())
		}
		if len(args) == 1 {
			a.only = args[0]
		}
		return nil
	}
	cmd.RunE = func(*cobra.Command, []string) error {
		c.started = true
		if a.config != "" {
			cfg, err := LoadConfig(a.config)
			if err != nil {
				return err
			}
			a.dir = cfg.Spool.Dir
		}
		a.dir = filepath.Clean(a.dir)
		return do(a)
	}
	return cmd
}

// wants tells whether a lane was asked for.
func (a *spoolArgs) wants(l *spool.LaneInfo) bool {
	return a.only == "" || a.only == l.Topic || a.only == strconv.FormatUint(uint64(l.ID), 10)
}

func (c *cli) spoolVerify(a *spoolArgs) error {
	in, err := spool.Verify(spool.Options{Dir: a.dir})
	if err != nil {
		return err
	}
	out := bufio.NewWriter(c.stdout)
	if a.json {
		err = writeJSON(out, verifyView(in))
	} else {
		for _, d := range in.Damage {
			fmt.Fprintf(out, "damaged: %s\n", damageText(&d))
		}
		if in.VoidBytes > 0 {
			fmt.Fprintf(out, "%d bytes at the end are torn or still being written; a start reads their lines again\n", in.VoidBytes)
		}
		if len(in.Damage) == 0 {
			batches := 0
			for _, s := range in.Segments {
				batches += s.Batches
			}
			fmt.Fprintf(out, "%d segments, %d batches: all checksums are right\n", len(in.Segments), batches)
		}
	}
	if err = errors.Join(err, out.Flush()); err != nil {
		return err
	}
	if n := len(in.Damage); n > 0 {
		return fmt.Errorf("%s: %d places are damaged; the agent goes on without them and counts what is lost", a.dir, n)
	}
	return nil
}

func damageText(d *spool.Damage) string {
	text := "nothing is left of them"
	if d.Segment != 0 {
		text = fmt.Sprintf("segment %d, byte %d, %d bytes", d.Segment, d.Position, d.Bytes)
	}
	if d.From < d.To {
		text = fmt.Sprintf("lane %d, records %d to %d: %s", d.Lane, d.From, d.To-1, text)
	}
	return text + ": " + d.Reason
}

func (c *cli) spoolLs(a *spoolArgs) error {
	in, err := spool.Inspect(spool.Options{Dir: a.dir})
	if err != nil {
		return err
	}
	out := bufio.NewWriter(c.stdout)
	if a.json {
		err = writeJSON(out, spoolView(in))
	} else {
		printSpool(out, in)
	}
	return errors.Join(err, out.Flush())
}
