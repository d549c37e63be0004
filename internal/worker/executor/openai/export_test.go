package openai

import (
	"net/http"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// BoundListing replaces the time that servers of tools may take to list them.
func BoundListing(e executor.Executor, d time.Duration) { e.(*agent).listWithin = d }

// BoundCalls replaces the time that a call of a tool may take.
func BoundCalls(e executor.Executor, d time.Duration) { e.(*agent).callWithin = d }

// WrapTools wraps the transports to servers of tools.
func WrapTools(e executor.Executor, wrap func(http.RoundTripper) http.RoundTripper) {
	for _, s := range e.(*agent).servers {
		t := s.client.Transport.(*toolTransport)
		t.next = wrap(t.next)
	}
}
