package main

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/internal/config"
)

func TestEachEditionHasValidConfiguration(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		unset := func(string) (string, bool) { return "", false }
		_, err := config.Load(config.Source{File: file, Env: unset, Programs: []string{"kit"}})
		require.NoError(t, err, file)
	}
}

// recorder records what an agent emits.
type recorder struct {
	agent.Emitter
	emitted []string
}

func (r *recorder) Working(context.Context, agent.Message) error {
	r.emitted = append(r.emitted, "working")
	return nil
}

func (r *recorder) Artifact(_ context.Context, a agent.Artifact) error {
	r.emitted = append(r.emitted, "artifact "+a.Parts[0].Text+a.Parts[0].URL)
	return nil
}

func (r *recorder) AskInput(_ context.Context, m agent.Message) error {
	r.emitted = append(r.emitted, "ask "+m.Text())
	return nil
}

func TestLongestMessageIDPrefixWins(t *testing.T) {
	t.Parallel()
	for id, want := range map[string][]string{
		"tck-artifact-file-url-1":    {"artifact https://example.com/output.txt"},
		"tck-artifact-file-1":        {"artifact "},
		"tck-stream-ordering-001-x":  {"working", "artifact Ordered output"},
		"tck-stream-002":             nil,
		"tck-input-required-abc":     {"ask "},
		"test-message-id-unscripted": {"working", "artifact You said: hello", "ask Anything else?"},
	} {
		r := &recorder{}
		m := agent.Say("hello")
		m.ID = id
		require.NoError(t, answer(t.Context(), &agent.Run{Message: m, Turn: 1}, r), id)
		require.Equal(t, want, r.emitted, id)
	}
}
