package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/load"
)

func (c *command) bench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure an installation with real tasks",
		Long: `Keep a number of tasks in flight for a while. Print how many tasks completed, how long
they took, and what failed. The tasks are real: the server stores and runs them like any
other, the agent does its work for each, and they stay in the database.

  blocking  message/send, which waits for the end of the task
  stream    message/stream, and the chunks of its stream
  poll      message/send without waiting, then tasks/get until the end of the task

Run this on a machine near the server, but not on the server's machine, where both would
share its CPU. The exit code is 1 if any task did not complete.`,
		Example: `  holdfast bench
  holdfast bench --url https://agents.example.com --agent demo --inflight 16,64,256 --duration 30s
  holdfast bench --mode stream --text "chunks=1000 size=256" --inflight 4 -o json`,
		Args: argCount(0, 0),
	}
	var r remote
	flags := cmd.Flags()
	inFlight := flags.IntSlice("inflight", []int{16, 64}, "numbers of tasks in flight; each is measured in turn")
	duration := flags.Duration("duration", 10*time.Second, "how long each measurement starts new tasks")
	mode := flags.String("mode", string(load.Blocking), "how to send: blocking, stream or poll")
	text := flags.String("text", "", `text of the messages (default "echo:hello", for streams "chunks=100 size=256": scripts of the demo agent)`)
	pollEvery := flags.Duration("poll-interval", 50*time.Millisecond, "pause before each tasks/get, with --mode poll")
	timeout := flags.Duration("timeout", time.Minute, "time after which a task counts as failed")
	r.register(cmd)
	flags.Lookup("url").Usage = "URL of the server or of one of its agents (default $HOLDFAST_URL, else the server of this directory, else " + defaultURL + ")"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o := load.Options{Mode: load.Mode(*mode), Text: *text, Duration: *duration, PollEvery: *pollEvery, Timeout: *timeout}
		if err := checkLoad(o, *inFlight); err != nil {
			return err
		}
		if o.Text == "" {
			o.Text = "echo:hello"
			if o.Mode == load.Stream {
				o.Text = "chunks=100 size=256"
			}
		}
		at, err := c.options(&r)
		if err != nil {
			return err
		}
		target, err := load.NewTarget(at.Server, at.Header)
		if err != nil {
			return usage("--url: %w", err)
		}
		o.Targets = []*load.Target{target}
		c.note("This creates real tasks at %s; they stay in its database.", at.Server)
		return c.measure(cmd.Context(), o, *inFlight, at.Server, *r.output)
	}
	return cmd
}

func checkLoad(o load.Options, inFlight []int) error {
	switch {
	case !slices.Contains(load.Modes, o.Mode):
		return usage("--mode: %q is unknown; use blocking, stream or poll", o.Mode)
	case len(inFlight) == 0 || slices.Min(inFlight) < 1 || slices.Max(inFlight) > 10_000:
		return usage("--inflight: use numbers from 1 to 10000, separated by commas")
	case o.Duration <= 0:
		return usage("--duration must be above 0")
	case o.PollEvery < 0:
		return usage("--poll-interval must not be negative")
	case o.Timeout <= 0:
		return usage("--timeout must be above 0")
	}
	return nil
}

// measurement is the result for one number of tasks in flight.
type measurement struct {
	InFlight int            `json:"inflight"`
	Seconds  float64        `json:"seconds"`
	Tasks    int            `json:"tasks"`
	TaskRate float64        `json:"tasks_per_second"`
	Chunks   int            `json:"chunks,omitempty"`
	Rate     float64        `json:"chunks_per_second,omitempty"`
	Polls    int            `json:"polls,omitempty"`
	P50      float64        `json:"p50_ms"`
	P95      float64        `json:"p95_ms"`
	P99      float64        `json:"p99_ms"`
	Errors   map[string]int `json:"errors"`
}

func (c *command) measure(ctx context.Context, o load.Options, inFlight []int, url string, format output) error {
	var all []measurement
	var failed int
	var stopped error
	for _, n := range inFlight {
		o.InFlight = n
		result, err := load.Run(ctx, o)
		if result == nil {
			return fmt.Errorf("%w\nIs the server running? This used %s; set another URL with --url or HOLDFAST_URL", err, url)
		}
		if result.Example != nil {
			c.note("With %d in flight, %d tasks did not complete, for example: %v", n, result.Failed(), result.Example)
		}
		all = append(all, measured(n, result))
		failed += result.Failed()
		if err != nil {
			stopped = fmt.Errorf("stopped early: %w", err)
			break
		}
	}
	if err := c.printMeasured(all, o, url, format); err != nil {
		return err
	}
	if stopped == nil && failed > 0 {
		return &exitError{code: exitFailed}
	}
	return stopped
}

func measured(inFlight int, r *load.Result) measurement {
	ms := func(q float64) float64 { return float64(r.Quantile(q).Microseconds()) / 1000 }
	return measurement{
		InFlight: inFlight, Seconds: r.Elapsed.Seconds(), Tasks: r.Tasks, TaskRate: r.TasksPerSecond(),
		Chunks: r.Chunks, Rate: r.ChunksPerSecond(), Polls: r.Polls, P50: ms(0.5), P95: ms(0.95), P99: ms(0.99), Errors: r.Errors,
	}
}

func (c *command) printMeasured(all []measurement, o load.Options, url string, format output) error {
	if format == outputJSON {
		return printJSON(c.Out, struct {
			URL     string        `json:"url"`
			Mode    load.Mode     `json:"mode"`
			Text    string        `json:"text"`
			Results []measurement `json:"results"`
		}{url, o.Mode, o.Text, all})
	}
	heading := []string{"IN FLIGHT", "TASKS", "TASKS/S", "P50 MS", "P95 MS", "P99 MS", "ERRORS"}
	if o.Mode == load.Stream {
		heading = slices.Insert(heading, 3, "CHUNKS/S")
	}
	rows := [][]string{heading}
	for _, m := range all {
		row := []string{
			strconv.Itoa(m.InFlight), strconv.Itoa(m.Tasks), fmt.Sprintf("%.1f", m.TaskRate),
			fmt.Sprintf("%.1f", m.P50), fmt.Sprintf("%.1f", m.P95), fmt.Sprintf("%.1f", m.P99), errorCounts(m.Errors),
		}
		if o.Mode == load.Stream {
			row = slices.Insert(row, 3, fmt.Sprintf("%.0f", m.Rate))
		}
		rows = append(rows, row)
	}
	return table(c.Out, rows)
}

func errorCounts(errors map[string]int) string {
	if len(errors) == 0 {
		return "none"
	}
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(errors)) {
		out = append(out, fmt.Sprintf("%d %s", errors[kind], kind))
	}
	return strings.Join(out, ", ")
}
