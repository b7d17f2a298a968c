package main

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The counters of GET /stats for Prometheus: shipper_NAME_total for what only grows, shipper_NAME for the rest. A new field of
// statsReply is a new metric by itself.

// metrics is a prometheus.Collector over snapshots of statsReply.
type metrics struct {
	snapshot func() statsReply
	descs    []*prometheus.Desc // by field of statsReply; nil: no number
	kinds    []prometheus.ValueType
	records  *prometheus.Desc
}

func metricsHandler(snapshot func() statsReply) http.Handler {
	m := &metrics{snapshot: snapshot}
	t := reflect.TypeFor[statsReply]()
	for i := range t.NumField() {
		name, kind := t.Field(i).Tag.Get("json"), prometheus.GaugeValue
		name, _, _ = strings.Cut(name, ",")
		help := "The agent's " + strings.ReplaceAll(name, "_", " ") + ", as in GET /stats."
		if t.Field(i).Type.Kind() == reflect.Uint64 {
			name, kind = name+"_total", prometheus.CounterValue
		}
		m.descs = append(m.descs, prometheus.NewDesc("shipper_"+name, help, nil, nil))
		m.kinds = append(m.kinds, kind)
		if !reflect.Zero(t.Field(i).Type).CanConvert(reflect.TypeFor[float64]()) && t.Field(i).Type.Kind() != reflect.Bool {
			m.descs[i] = nil
		}
	}
	m.records = prometheus.NewDesc("shipper_records_total", "Records that were dropped or changed, as in GET /stats.", []string{"source", "reason"}, nil)
	r := prometheus.NewRegistry()
	r.MustRegister(m)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range m.descs {
		if d != nil {
			out <- d
		}
	}
	out <- m.records
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	s := m.snapshot()
	for source, reasons := range s.Records {
		for reason, n := range reasons {
			out <- prometheus.MustNewConstMetric(m.records, prometheus.CounterValue, float64(n), source, reason)
		}
	}
	v := reflect.ValueOf(s)
	for i, d := range m.descs {
		if d == nil {
			continue
		}
		value := 0.0
		if f := v.Field(i); f.Kind() != reflect.Bool {
			value = f.Convert(reflect.TypeFor[float64]()).Float()
		} else if f.Bool() {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(d, m.kinds[i], value)
	}
}
