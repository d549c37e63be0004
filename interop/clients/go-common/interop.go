// Package interop is what the Go clients share: the job, the report, and checks. interop/README.md describes them.
package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Limit is the time that a scenario may take.
const Limit = 30 * time.Second

// Job is what the harness gives a client.
type Job struct {
	Binding     string `json:"binding"`
	A           string `json:"a"`
	B           string `json:"b"`
	Through     string `json:"through"`
	Cut         string `json:"cut"`
	GRPCA       string `json:"grpc_a"`
	GRPCB       string `json:"grpc_b"`
	GRPCThrough string `json:"grpc_through"`
	Receiver    string `json:"receiver"`
	Locked      string `json:"locked"`
	GRPCLocked  string `json:"grpc_locked"`
	APIKey      string `json:"api_key"`
	Token       string `json:"token"`
}

// Scenario is one that a client plays.
type Scenario struct {
	Name string
	Play func(context.Context) error
}

// Absent ends a scenario for which a client has no call. Its text says why.
type Absent string

func (a Absent) Error() string { return string(a) }

// Play is the Play of a Scenario.
func (a Absent) Play(context.Context) error { return a }

// Main plays the scenarios of a client, and prints the outcome of each.
func Main(prepare func(Job) ([]Scenario, error)) {
	if err := run(prepare); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(prepare func(Job) ([]Scenario, error)) error {
	content, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	var j Job
	if err := json.Unmarshal(content, &j); err != nil {
		return err
	}
	scenarios, err := prepare(j)
	if err != nil {
		return fmt.Errorf("build the clients: %w", err)
	}
	out := json.NewEncoder(os.Stdout)
	for _, s := range scenarios {
		if err := out.Encode(s.result()); err != nil {
			return err
		}
	}
	return nil
}

type result struct {
	Scenario string `json:"scenario"`
	Outcome  string `json:"outcome"`
	Detail   string `json:"detail"`
}

func (s Scenario) result() result {
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	err := s.Play(ctx)
	switch {
	case err == nil:
		return result{s.Name, "passed", ""}
	case errors.As(err, new(Absent)):
		return result{s.Name, "absent", err.Error()}
	}
	return result{s.Name, "failed", err.Error()}
}

// CutConnections has the proxy close every connection.
func (j Job) CutConnections(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, j.Cut, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return Want("status of the cut", resp.StatusCode, http.StatusOK)
}

// Delivery is a request that the receiver accepted.
type Delivery struct {
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// Arrived waits until so many requests or more came to a webhook.
func (j Job) Arrived(ctx context.Context, id string, least int) (arrived []Delivery, err error) {
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, j.Receiver+"/received?path=/"+id, http.NoBody)
		if err != nil {
			return nil, err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return nil, fmt.Errorf("%d of %d deliveries came to %s: %w", len(arrived), least, id, err)
		}
		err = json.NewDecoder(resp.Body).Decode(&arrived)
		_ = resp.Body.Close()
		if err != nil || len(arrived) >= least {
			return arrived, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// chunkSize is the size of the chunks that scenarios ask for.
const chunkSize = 64

// Chunks takes the text of a task, which a read task has in one part, apart.
func Chunks(text string) []string {
	var chunks []string
	for chunk := range slices.Chunk([]byte(text), chunkSize) {
		chunks = append(chunks, string(chunk))
	}
	return chunks
}

// InOrder holds if there are n chunks, each beginning with its index.
func InOrder(chunks []string, n int) error {
	for i, c := range chunks {
		if !strings.HasPrefix(c, fmt.Sprintf("%08d ", i)) {
			return fmt.Errorf("chunk %d is %q", i, c)
		}
	}
	return Want("chunks", len(chunks), n)
}

// Want holds if both values are deeply equal.
func Want[T any](what string, got, expected T) error {
	if !reflect.DeepEqual(got, expected) {
		return fmt.Errorf("%s: got %v, want %v", what, got, expected)
	}
	return nil
}

// Same holds if both values have the same JSON.
func Same(what string, got, expected any) error {
	g, err := json.Marshal(got)
	if err != nil {
		return err
	}
	e, err := json.Marshal(expected)
	if err != nil {
		return err
	}
	return Want(what, string(g), string(e))
}
