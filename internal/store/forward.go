package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// forwardPlace binds sealed headers to their task and to the agent that may get them.
func forwardPlace(t *task.Task) string { return fmt.Sprintf("%s forwarded to %s", t.ID, t.Agent) }

// sealForwarded returns the headers as column task_queue.forwarded has them, or "" for none.
func (s *Store) sealForwarded(ctx context.Context, t *task.Task, headers task.Forwarded) (string, error) {
	if len(headers) == 0 {
		return "", nil
	}
	ring, err := s.sealing(ctx)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(headers)
	if err != nil {
		return "", translate("seal", err)
	}
	return base64.StdEncoding.EncodeToString(ring.Seal(text, forwardPlace(t))), nil
}

func (s *Store) openForwarded(ctx context.Context, t *task.Task, sealed string) (headers task.Forwarded, err error) {
	if sealed == "" {
		return nil, nil
	}
	ring, err := s.sealing(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, fmt.Errorf("the forwarded headers: %w", err)
	}
	text, err := ring.Open(raw, forwardPlace(t))
	if err != nil {
		return nil, fmt.Errorf("the forwarded headers: %w", err)
	}
	if json.Unmarshal(text, &headers) != nil {
		return nil, errors.New("the forwarded headers are not as we write them") // do not show them
	}
	return headers, nil
}
