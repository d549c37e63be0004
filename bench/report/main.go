// Command report renders the output of the benchmarks as the tables of bench/README.md, each number
// beside the raw limit that was measured in the same run.
//
//	go test -run '^$' -bench . ./bench | go run ./bench/report
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := report(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// result is a line of the benchmarks' output: its name without the prefix, and its metrics by unit.
type result struct {
	group, name string
	metrics     map[string]float64
}

// raw is a column with a raw limit. The row's parameter selects the metric: Blocking/inflight=16 leads to
// RawInsert/conns=16.
type raw struct {
	heading, unit string
	name          string // with %s for the parameter
	param         string // of the row; "" for a fixed name
}

var tables = []struct {
	group, title string
	raw          []raw
}{
	{"RawNotify", "Raw: NOTIFY to LISTEN", nil},
	{"RawInsert", "Raw: one row for each transaction", nil},
	{"RawUnnest", "Raw: many rows for each transaction", nil},
	{"RawEcho", "Raw: net/http with nothing behind it", nil},
	{"RawSSE", "Raw: chunks of 256 bytes that nobody stores", nil},
	{"Latency", "From emission to a reader", []raw{{"raw NOTIFY p50-ms", "p50-ms", "RawNotify/idle", ""}, {"raw NOTIFY p99-ms", "p99-ms", "RawNotify/idle", ""}}},
	{"FanOut", "One task, 200 readers on two replicas", nil},
	{"Blocking", "Blocking echo tasks", []raw{
		{"raw commits/s", "commits/s", "RawInsert/conns=%s", "inflight"}, {"raw echo requests/s", "requests/s", "RawEcho/inflight=%s", "inflight"},
	}},
	{"Poll", "Submit and poll", []raw{
		{"raw commits/s", "commits/s", "RawInsert/conns=%s", "inflight"}, {"raw echo requests/s", "requests/s", "RawEcho/inflight=%s", "inflight"},
	}},
	{"Stream", "Chunks, of 256 bytes unless noted, each durable before it is sent", []raw{
		{"raw rows/s", "rows/s", "RawUnnest/conns=2/rows=500", ""}, {"raw SSE chunks/s", "chunks/s", "RawSSE/streams=%s/flush=full", "streams"},
	}},
	{"Replicas", "Replicas that share the machine", nil},
}

func report(in io.Reader, out io.Writer) error {
	results, environment, failed, err := parse(in)
	if err != nil {
		return err
	}
	byName := map[string]result{}
	for _, r := range results {
		byName[r.group+"/"+r.name] = r
	}
	var b strings.Builder
	if len(environment) > 0 {
		fmt.Fprintf(&b, "%s\n", strings.Join(environment, "; "))
	}
	for _, t := range tables {
		var rows []result
		for _, r := range results {
			if r.group == t.group {
				rows = append(rows, r)
			}
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n\n", t.title)
		units := unitsOf(rows)
		heading := append([]string{t.group}, units...)
		for _, r := range t.raw {
			heading = append(heading, r.heading)
		}
		line(&b, heading)
		line(&b, slices.Repeat([]string{"---"}, len(heading)))
		for _, r := range rows {
			cells := []string{r.name}
			for _, u := range units {
				cells = append(cells, shown(r.metrics, u))
			}
			for _, limit := range t.raw {
				name := limit.name
				if limit.param != "" {
					name = fmt.Sprintf(limit.name, param(r.name, limit.param))
				}
				cells = append(cells, shown(byName[name].metrics, limit.unit))
			}
			line(&b, cells)
		}
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}
	if failed != "" {
		return fmt.Errorf("the benchmarks did not all pass: %s", failed)
	}
	if len(results) == 0 {
		return fmt.Errorf("no results in the input")
	}
	return nil
}

func line(b *strings.Builder, cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }

// parse reads the output of go test. The description of the machine is a list of "key: value" lines.
func parse(in io.Reader) (results []result, environment []string, failed string, err error) {
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		text := scanner.Text()
		fields := strings.Fields(text)
		switch {
		case strings.HasPrefix(text, "Benchmark") && len(fields) >= 4 && len(fields)%2 == 0:
			r := result{metrics: map[string]float64{}}
			name := strings.TrimPrefix(fields[0], "Benchmark")
			if i := strings.LastIndexByte(name, '-'); i > 0 { // the number of cores
				if _, err := strconv.Atoi(name[i+1:]); err == nil {
					name = name[:i]
				}
			}
			r.group, r.name, _ = strings.Cut(name, "/")
			for i := 2; i < len(fields); i += 2 {
				v, err := strconv.ParseFloat(fields[i], 64)
				if err != nil {
					return nil, nil, "", fmt.Errorf("%q: %w", text, err)
				}
				r.metrics[fields[i+1]] = v
			}
			results = append(results, r)
		case strings.HasPrefix(text, "--- FAIL"), strings.HasPrefix(text, "FAIL"), strings.HasPrefix(text, "panic:"):
			if failed == "" {
				failed = text
			}
		case strings.HasPrefix(text, "cpu: "), strings.HasPrefix(text, "goarch: "), strings.HasPrefix(text, "postgresql-"):
			environment = append(environment, text)
		}
	}
	return results, environment, failed, scanner.Err()
}

// unitsOf returns the columns: rates first, then the rest by name.
func unitsOf(rows []result) []string {
	var units []string
	for _, r := range rows {
		for u := range r.metrics {
			if !slices.Contains(units, u) {
				units = append(units, u)
			}
		}
	}
	slices.SortFunc(units, func(a, b string) int {
		if x, y := strings.HasSuffix(a, "/s"), strings.HasSuffix(b, "/s"); x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return units
}

// param finds the value of a parameter in a name such as streams=4/chunks=100.
func param(name, key string) string {
	for part := range strings.SplitSeq(name, "/") {
		if v, ok := strings.CutPrefix(part, key+"="); ok {
			return v
		}
	}
	return ""
}

// shown formats a metric with three significant digits and thousands separators.
func shown(metrics map[string]float64, unit string) string {
	v, ok := metrics[unit]
	if !ok {
		return ""
	}
	switch {
	case v >= 100 || v <= -100:
		digits := strconv.FormatFloat(v, 'f', 0, 64)
		for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
			digits = digits[:i] + "," + digits[i:]
		}
		return digits
	case v >= 10 || v <= -10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
