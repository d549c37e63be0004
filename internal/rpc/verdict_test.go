package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/auth"
)

// The operation gets the decision that the agent made on arrival, not a second one.
func TestAgentDecidesOnce(t *testing.T) {
	t.Parallel()
	s := &Server{
		opt:    Options{Auth: auth.New(auth.Options{})},
		agents: map[string]*served{"a": {Agent: &Agent{Name: "a", Gate: auth.Gate{Schemes: []string{"keys"}}}}}, names: []string{"a"},
	}
	at := s.endpoint(t.Context(), &auth.Request{Header: func(string) []string { return nil }}, "a", true)
	_, err := at.Admit("a")
	require.Error(t, err)
	require.Same(t, at.TurnedAway, err)
}
