package main

import (
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

func TestMetrics(t *testing.T) {
	s := statsReply{UptimeSeconds: 1.5, LinesRead: 42, Files: 7, SpoolFull: true,
		Records: map[string]map[string]uint64{"app": {"excluded": 3, "redacted": 1}, "nginx": {"excluded": 5}}}
	w := httptest.NewRecorder()
	metricsHandler(func() statsReply { return s }).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text := w.Body.String()
	for _, want := range []string{
		"# TYPE shipper_lines_read_total counter\nshipper_lines_read_total 42\n",
		"# TYPE shipper_files gauge\nshipper_files 7\n",
		"shipper_uptime_seconds 1.5\n",
		"shipper_spool_full 1\n",
		"shipper_inotify 0\n",
		"# TYPE shipper_records_total counter\n",
		`shipper_records_total{reason="excluded",source="app"} 3` + "\n",
		`shipper_records_total{reason="redacted",source="app"} 1` + "\n",
		`shipper_records_total{reason="excluded",source="nginx"} 5` + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	numbers := 0
	for f := range reflect.TypeFor[statsReply]().Fields() {
		if k := f.Type.Kind(); k == reflect.Bool || k >= reflect.Int && k <= reflect.Float64 {
			numbers++
		}
	}
	if got := strings.Count(text, "# TYPE shipper_"); got != numbers+1 {
		t.Errorf("%d metrics for %d counters and the records", got, numbers)
	}
}
