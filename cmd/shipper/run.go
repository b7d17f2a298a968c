package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"shipper/pipeline"
)

// stopMax bounds a stop: what was read is in the spool or is read again by the next start, so nothing is lost by leaving.
const stopMax = 9 * time.Second

// errStopTooLong is why an agent that was asked to stop ends with exit code 1 after all.
var errStopTooLong = errors.New("the stop took too long and was cut short; nothing is lost, the next start recovers")

// runAgent runs until ctx is done and the agent has flushed.
func runAgent(ctx context.Context, cfg *Config, log *slog.Logger) error {
	p, err := configToPipeline(cfg, log)
	if err != nil {
		return err
	}
	agent, err := pipeline.Open(p)
	if err != nil {
		return err
	}
	admin, err := listenAdmin(cfg.Admin, agent, log)
	if err != nil {
		log.Warn("no admin interface: status commands will not work; lines are shipped all the same", "error", err)
	}
	defer admin.close()
	log.Info("shipper runs", "version", versionString(), "sources", len(cfg.Sources), "brokers", fmt.Sprint(cfg.Kafka.Brokers))
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		log.Info("asked to stop: what was read goes to the spool")
		select {
		case err = <-done:
		case <-time.After(stopMax):
			return errStopTooLong
		}
	}
	if err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}
