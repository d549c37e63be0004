package push

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/web"
)

var errChallenge = &web.GuardRefusal{Reason: "the receiver did not answer GET with the validationToken that it was asked to repeat"}

// Challenge asks a receiver for its consent. The receiver must echo the validationToken of a GET, as in the A2A samples
// of 2025. The error is a *web.GuardRefusal.
func (s *Sender) Challenge(ctx context.Context, to *web.GuardedTarget) error {
	nonce := rand.Text()
	target := *to.URL
	query := target.Query()
	query.Set("validationToken", nonce)
	target.RawQuery = query.Encode()
	ctx, cancel := context.WithTimeout(ctx, s.opt.ConnectTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return errChallenge
	}
	request.Header.Set("User-Agent", s.opt.UserAgent)
	response, err := s.client.Do(request)
	if err != nil {
		return errChallenge
	}
	defer response.Body.Close()
	// The echo may have white space around it. More bytes show that the answer is something else.
	echo, err := io.ReadAll(io.LimitReader(response.Body, int64(len(nonce))+16))
	if err != nil || response.StatusCode != http.StatusOK || strings.TrimSpace(string(echo)) != nonce {
		return errChallenge
	}
	return nil
}
