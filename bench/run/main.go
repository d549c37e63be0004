// Command run measures an installation with real tasks: which complete, how long they take, and what fails. The server stores and runs
// them as any other, and they stay in its database. Run it near the server, not on its machine, where both would share the processor.
//
//	go run ./bench/run --url http://127.0.0.1:8080/agents/demo --inflight 16,64,256 --duration 30s
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-a2a/holdfast/bench/load"
	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 1 if a task did not complete, and 2 for a wrong command line.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	note := func(format string, args ...any) { _, _ = fmt.Fprintf(errs, format+"\n", args...) }
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.SetOutput(errs)
	var o load.Options
	var headers []string
	inFlight := []int{16, 64}
	url := flags.String("url", "http://127.0.0.1:8080", "URL of the agent")
	mode := flags.String("mode", string(load.Blocking), "blocking: message/send, which waits for the end of the task; stream: message/stream, and its chunks; "+
		"poll: message/send without waiting, then tasks/get until the end of the task")
	flags.StringVar(&o.Text, "text", "", `text of the messages (default "echo:hello", for streams "chunks=100 size=256": scripts of the demo agent)`)
	flags.DurationVar(&o.Duration, "duration", 10*time.Second, "how long each measurement starts new tasks")
	flags.DurationVar(&o.PollEvery, "poll-interval", 50*time.Millisecond, "pause before each tasks/get")
	flags.DurationVar(&o.Timeout, "timeout", time.Minute, "time after which a task counts as failed")
	flags.Func("inflight", "numbers of tasks in flight, each measured in turn (default 16,64)", func(text string) (err error) {
		inFlight, err = numbers(text)
		return err
	})
	flags.Func("H", `header to send, as "Name: value"; @FILE has such lines; may be repeated`, func(text string) error {
		headers = append(headers, text)
		return nil
	})
	if flags.Parse(args) != nil {
		return 2
	}
	client.WarnOfSecrets("H", headers, note)
	header, err := client.ReadHeaders(os.Stdin, headers)
	var target *load.Target
	if err == nil {
		target, err = load.NewTarget(*url, header)
	}
	o.Mode, o.Targets = load.Mode(*mode), []*load.Target{target}
	if err == nil && (!slices.Contains(load.Modes, o.Mode) || flags.NArg() > 0 || o.Duration <= 0 || o.Timeout <= 0 || o.PollEvery < 0) {
		err = fmt.Errorf("a value cannot be used; --help lists the flags")
	}
	if err != nil {
		note("%v", err)
		return 2
	}
	if o.Text == "" {
		o.Text = "echo:hello"
		if o.Mode == load.Stream {
			o.Text = "chunks=100 size=256"
		}
	}
	note("This creates real tasks at %s; they stay in its database.", *url)
	return measure(ctx, o, inFlight, out, note)
}

func numbers(text string) (all []int, err error) {
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > 10_000 {
			return nil, fmt.Errorf("use numbers from 1 to 10000, separated by commas")
		}
		all = append(all, n)
	}
	return all, nil
}

// measure prints a row for each number of tasks in flight.
func measure(ctx context.Context, o load.Options, inFlight []int, out io.Writer, note func(format string, args ...any)) (code int) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "IN FLIGHT\tTASKS\tTASKS/S\tCHUNKS/S\tP50 MS\tP95 MS\tP99 MS\tERRORS")
	for _, o.InFlight = range inFlight {
		r, err := load.Run(ctx, o)
		if r != nil {
			ms := func(q float64) float64 { return float64(r.Quantile(q).Microseconds()) / 1000 }
			_, _ = fmt.Fprintf(t, "%d\t%d\t%.1f\t%.0f\t%.1f\t%.1f\t%.1f\t%s\n", o.InFlight, r.Tasks, r.TasksPerSecond(), r.ChunksPerSecond(),
				ms(0.5), ms(0.95), ms(0.99), failures(r.Errors))
			if r.Example != nil {
				note("With %d in flight, %d tasks did not complete, for example: %v", o.InFlight, r.Failed(), r.Example)
				code = 1
			}
		}
		if err != nil {
			note("stopped early: %v", err)
			code = 1
			break
		}
	}
	if err := t.Flush(); err != nil {
		return 1
	}
	return code
}

func failures(errors map[string]int) string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(errors)) {
		all = append(all, fmt.Sprintf("%d %s", errors[kind], kind))
	}
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}
