package server

import (
	"context"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// newTokens makes the tokens of a purpose. Their keys are read once: another replica with a new first key needs one that this
// one has, too.
func newTokens(ctx context.Context, st *store.Store, purpose string) (*task.Tokens, error) {
	keys, err := st.Derive(ctx, purpose)
	if err != nil {
		return nil, err
	}
	return task.NewTokens(keys), nil
}
