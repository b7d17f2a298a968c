// Command shipper tails log files and delivers every line to Kafka exactly once, in order per file.
//
//	main -> run -> one cobra command -> LoadConfig -> runAgent (run.go) | checkConfig (check.go) | runDemo (demo.go)
//
// Exit codes: 0 asked to stop (or the command did its work), 1 cannot go on, 2 usage or config.
// An error is printed once, here, as one sentence on standard error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes are part of the interface: unit files and scripts decide by them whether a restart can help.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// version is set by the linker (-X main.version=...) in released binaries.
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal asks for a clean stop; from then on the default action is back, so that a second one ends a stop that hangs.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code. It touches nothing global but the signal table
// (see runCommand), so tests call it in process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := &cli{stdout: stdout, stderr: stderr}
	root := c.rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "shipper: %v\n", err)
	if _, isConfig := errors.AsType[*ConfigError](err); isConfig || !c.started {
		return exitUsage
	}
	return exitFailed
}

// cli is one command line being executed.
type cli struct {
	stdout, stderr io.Writer
	started        bool // a command's own code ran: errors before that are errors of usage
}

func (c *cli) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "shipper",
		Short:         "Tail log files and deliver every line to Kafka exactly once, in order per file",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.New("no command given; see `shipper --help`")
		},
	}
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath())
	})
	root.AddCommand(c.runCommand(), c.checkCommand(), c.explainCommand(), c.demoCommand(), c.demoWriterCommand(), c.spoolCommand(), c.fixCommand(), c.versionCommand())
	return root
}

// configFlag adds the required --config flag; its absence is an error of usage.
func configFlag(cmd *cobra.Command) *string {
	path := cmd.Flags().StringP("config", "c", "", "path of the YAML config file")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *path == "" {
			return fmt.Errorf("--config FILE is required; see `%s --help`", cmd.CommandPath())
		}
		return cobra.NoArgs(cmd, args)
	}
	return path
}

func (c *cli) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Run the agent in the foreground until SIGTERM or SIGINT",
		Long: `Run the agent in the foreground until SIGTERM or SIGINT.

Exit codes: 0 asked to stop, 1 cannot go on, 2 usage or config.`,
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c.started = true
		// Before the agent listens for it, SIGHUP must not end the process by its default action. Nor must the end of
		// whoever reads the log, which is SIGPIPE at the next line of it.
		signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
		cfg, err := LoadConfig(*path)
		if err != nil {
			return err
		}
		log := newLogger(cfg.Log, c.stderr)
		for _, w := range cfg.Warnings {
			log.Warn(w.Error())
		}
		go warnUnmatched(cfg, log) // beside the start: on a large tree this takes long
		return runAgent(cmd.Context(), cfg, log)
	}
	return cmd
}

func (c *cli) checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check --config FILE",
		Short: "Read the config and say what `run` would do; changes nothing",
		Long: `Read the config and say what "run" would do: files and bytes found per source, patterns that match
nothing and why, whether the spool directory can be used. Changes nothing and does not speak to Kafka.

Exit codes: 0 the agent can start, 1 it cannot go on, 2 usage or config.`,
	}
	path := configFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		c.started = true
		signal.Reset(syscall.SIGINT, syscall.SIGTERM) // there is nothing to flush: the first one ends it
		cfg, err := LoadConfig(*path)
		if err != nil {
			return err
		}
		return checkConfig(cfg, c.stdout)
	}
	return cmd
}

func (c *cli) demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a broker outage and a kill -9 on this machine, and count what arrived",
		Long: `Start an embedded Kafka cluster, a process that writes logs and the real agent in a temporary directory;
rotate the logs, cut the brokers off, kill the agent with SIGKILL, start it again; then read the topics back and compare
them with what was written, byte for byte. Needs nothing but this binary, speaks to 127.0.0.1 only, takes under 30 seconds.

Exit codes: 0 every line arrived once and in order, 1 not so.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "leave the files and the brokers up until Ctrl-C")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c.started = true
		return runDemo(cmd.Context(), o, c.stdout)
	}
	return cmd
}

func (c *cli) demoWriterCommand() *cobra.Command {
	var o writerOptions
	cmd := &cobra.Command{
		Use:    "demo-writer",
		Short:  "Write the log files of the demo",
		Hidden: true,
		Args:   cobra.NoArgs,
	}
	cmd.Flags().StringVar(&o.Dir, "dir", "", "directory to write to")
	cmd.Flags().DurationVar(&o.Duration, "for", 0, "how long to write")
	cmd.Flags().IntVar(&o.LinesPerSecond, "rate", 0, "lines per second and file")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c.started = true
		return runDemoWriter(cmd.Context(), o, c.stdout)
	}
	return cmd
}

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c.started = true
			_, err := fmt.Fprintf(c.stdout, "shipper %s %s %s/%s\n", versionString(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// versionString is the linked version, else what the Go tool recorded of the module and the commit.
func versionString() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = "-" + s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "-modified"
		}
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	return "devel" + revision + modified
}

// newLogger writes to w in the configured format; the levels and formats were checked by LoadConfig.
func newLogger(c LogConfig, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.Level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
