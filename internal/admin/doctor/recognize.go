package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
)

// httpAgent checks whether a server is at the address of an http agent, and whether it is of another kind.
func httpAgent(ctx context.Context, address string) ([]Finding, error) {
	found, err := answers(ctx, "http", address)
	if err != nil || found[0].Status != OK {
		return found, err
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("its URL is invalid")
	}
	at := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(u.Path, "/")}
	switch {
	case speaksA2A(ctx, at):
		return warns("http: %s://%s speaks A2A at this URL, as its agent card says", u.Scheme, u.Host).
			advise("set executor.kind to a2a, with a2a.card_url; see docs/agents/a2a.md"), nil
	case speaksOpenAI(ctx, at):
		return warns("http: %s://%s speaks the API of OpenAI at this URL", u.Scheme, u.Host).
			advise("set executor.kind to openai, with openai.base_url and openai.model; see docs/agents/openai.md"), nil
	}
	return found, nil
}

// speaksA2A reports whether a card at or above an endpoint names it.
func speaksA2A(ctx context.Context, endpoint *url.URL) bool {
	for _, base := range []string{endpoint.Path, ""} {
		for _, path := range []string{"/.well-known/agent-card.json", "/.well-known/agent.json"} {
			at := *endpoint
			at.Path = base + path
			_, body := get(ctx, &at)
			c, err := client.ReadCard(body, rawjson.MaxDepth)
			if err == nil && slices.ContainsFunc(c.Interfaces, func(i card.Interface) bool {
				u, err := url.Parse(i.URL)
				return err == nil && strings.TrimSuffix(u.Path, "/") == endpoint.Path
			}) {
				return true
			}
		}
	}
	return false
}

// speaksOpenAI reports whether an endpoint is one of the API, or its base. Its base lists models, or asks for a key.
func speaksOpenAI(ctx context.Context, endpoint *url.URL) bool {
	at := *endpoint
	for _, operation := range []string{"/chat/completions", "/responses"} {
		at.Path = strings.TrimSuffix(at.Path, operation)
	}
	at.Path += "/models"
	code, body := get(ctx, &at)
	var answer struct {
		Object string
		Error  *struct{ Type, Message string }
	}
	if json.Unmarshal(body, &answer) != nil {
		return false
	}
	return code == http.StatusOK && answer.Object == "list" ||
		code == http.StatusUnauthorized && answer.Error != nil && answer.Error.Type != "" && answer.Error.Message != ""
}

// get reads a document without a credential. The body is nil if the server does not answer.
func get(ctx context.Context, at *url.URL) (code int, body []byte) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return 0, nil
	}
	resp, err := direct.Do(r)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20)); err != nil {
		return 0, nil
	}
	return resp.StatusCode, body
}
