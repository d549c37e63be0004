package a2atest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Answer is a JSON-RPC response, with its HTTP status and headers.
type Answer struct {
	HTTP   int
	Header http.Header
	Body   []byte

	ID    json.RawMessage `json:"id"`
	Raw   json.RawMessage `json:"result"`
	Error *Error          `json:"error"`
}

// Result is the task or message in the answer.
func (a *Answer) Result() (*Result, error) {
	if a.Error != nil {
		return nil, a.Error
	}
	return readResult(a.Raw)
}

// Request makes the body of a JSON-RPC request.
func Request(method string, params any) []byte {
	return JSON(Object{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

// Request makes the body of an operation over JSON-RPC.
func (w *Wire) Request(op Op, a *Args) []byte { return Request(w.methods[op], w.Params(op, a)) }

// Post posts a body unchanged. Headers are names and values.
func Post(ctx context.Context, url string, body []byte, header ...string) (*http.Response, error) {
	return PostWith(ctx, http.DefaultClient, url, body, header...)
}

// PostWith is Post with the given client.
func PostWith(ctx context.Context, client *http.Client, url string, body []byte, header ...string) (*http.Response, error) {
	return do(ctx, client, http.MethodPost, url, body, header)
}

// do makes a request. A later version header or content type replaces an earlier one; other headers may come twice.
func do(ctx context.Context, client *http.Client, verb, url string, body []byte, header []string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, verb, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if name := http.CanonicalHeaderKey(header[i]); name == "Content-Type" || name == "A2a-Version" {
			req.Header.Del(name)
		}
		req.Header.Add(header[i], header[i+1])
	}
	req.Host = req.Header.Get("Host") // "": that of the URL
	return client.Do(req)
}

// Ask posts a body unchanged, and reads an answer that is not a stream.
func Ask(ctx context.Context, url string, body []byte, header ...string) (*Answer, error) {
	resp, err := Post(ctx, url, body, header...)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return ReadAnswer(resp)
}

// ReadAnswer reads an answer that is not a stream.
func ReadAnswer(resp *http.Response) (*Answer, error) {
	a := &Answer{HTTP: resp.StatusCode, Header: resp.Header}
	var err error
	if a.Body, err = io.ReadAll(resp.Body); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(a.Body, a); err != nil {
		return nil, fmt.Errorf("HTTP %d, not JSON-RPC: %.300s", a.HTTP, a.Body)
	}
	return a, nil
}

// Exchange makes a request below the server's URL, and reads the whole answer. Headers are names and values.
func (p *Peer) Exchange(verb, path string, body []byte, header ...string) (status int, text string, head http.Header) {
	p.T.Helper()
	resp, err := do(waittest.Context(p.T), http.DefaultClient, verb, p.URL+path, body, header)
	require.NoError(p.T, err, "%s %.80s on %s", verb, path, p.Name)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(p.T, err, "%s %.80s on %s", verb, path, p.Name)
	return resp.StatusCode, string(b), resp.Header
}

// Read gets a page that must be there.
func (p *Peer) Read(path string, header ...string) string {
	p.T.Helper()
	status, text, _ := p.Exchange(http.MethodGet, path, nil, header...)
	require.Equal(p.T, http.StatusOK, status, "%s on %s: %s", path, p.Name, text)
	return text
}

// Ask posts a JSON-RPC request.
func (p *Peer) Ask(method string, params any, header ...string) *Answer {
	p.T.Helper()
	return p.AskRaw(Request(method, params), header...)
}

// AskRaw posts a body unchanged to the common endpoint.
func (p *Peer) AskRaw(body []byte, header ...string) *Answer {
	p.T.Helper()
	a, err := Ask(waittest.Context(p.T), p.URL, body, header...)
	require.NoError(p.T, err, "%.200s on %s", body, p.Name)
	return a
}

// Try makes a JSON-RPC request that names no version. Any goroutine may call it.
func (p *Peer) Try(method string, params any, header ...string) (*Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waittest.Patience)
	defer cancel()
	a, err := Ask(ctx, p.URL, Request(method, params), header...)
	if err != nil {
		return nil, err
	}
	return a.Result()
}

// Call is Try for a request that must succeed.
func (p *Peer) Call(method string, params any, header ...string) *Result {
	p.T.Helper()
	res, err := p.Try(method, params, header...)
	require.NoError(p.T, err, "%s on %s", method, p.Name)
	return res
}
