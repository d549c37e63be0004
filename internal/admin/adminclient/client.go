// Package adminclient is a client of the admin API. Package shown has the types of its answers.
package adminclient

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Client calls the admin API of one server. Its methods may be called from many goroutines. Their errors are those of the server,
// with the Kind that fits; task.Unavailable also says that no server answered.
type Client struct {
	base       string
	credential string
	within     time.Duration // of a request that is no stream; 0: no limit
	http       *http.Client
}

// New makes a client for an admin address, such as http://127.0.0.1:9090. credential is an API key or a token, or "".
func New(server, credential string) *Client {
	c := &Client{base: strings.TrimSuffix(server, "/") + "/admin/v1", credential: credential, within: answerWithin}
	// A redirect would take the credential, and a write, elsewhere.
	c.http = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c
}

// Local makes a client for the API in this process, whose requests may take any time.
func Local(api http.Handler) *Client {
	c := New("http://local", "")
	c.within, c.http.Transport = 0, inProcess{api}
	return c
}

// Trust makes the client accept servers whose certificates these authorities have signed, and no others.
func (c *Client) Trust(authorities *x509.CertPool) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	c.http.Transport = transport
}

// maxAnswer bounds an answer, in bytes. A page of a log has 4 MiB, or one event.
const maxAnswer = 256 << 20

// answerWithin bounds a request that is no stream. An examination takes minutes.
const answerWithin = 6 * time.Minute

// Get reads a document.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.do(ctx, http.MethodGet, path, nil, into)
}

// Post acts.
func (c *Client) Post(ctx context.Context, path string, body, into any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPost, path, raw, into)
}

// OfTask returns the path of a task, or of a part of it.
func OfTask(id string, parts ...string) string {
	path := "/tasks/" + segment(id)
	for _, p := range parts {
		path += "/" + segment(p)
	}
	return path
}

// segment escapes a segment of a path. Routers take plain dots for a way up.
func segment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	if c.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.within)
		defer cancel()
	}
	res, err := c.begin(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return away(ctx, err)
	}
	if res.StatusCode >= 300 {
		return problem(res, raw)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s answered with something else than JSON: is it the admin address (admin_listen)? %w", c.base, err)
	}
	return nil
}

func (c *Client) begin(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.credential != "" {
		r.Header.Set("Authorization", "Bearer "+c.credential)
	}
	res, err := c.http.Do(r)
	if err != nil {
		return nil, away(ctx, err)
	}
	return res, nil
}

// away says that no server answered. The error names the server and no credential.
func away(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Canceled
	}
	return &task.Error{Kind: task.Unavailable, Msg: "the server did not answer", Cause: err}
}

// kinds are the kinds of errors, by the reason of the problem.
var kinds = map[string]task.Kind{
	"invalid": task.Invalid, "unauthenticated": task.Unauthenticated, "forbidden": task.Forbidden, "not_found": task.NotFound,
	"conflict": task.Busy, "too_large": task.TooLarge, "busy": task.RateLimited, "unavailable": task.Unavailable,
}

func problem(res *http.Response, raw []byte) error {
	var p struct {
		Title  string `json:"title"`
		Reason string `json:"reason"`
		Detail string `json:"detail"`
	}
	if json.Unmarshal(raw, &p) != nil || p.Reason == "" {
		return fmt.Errorf("%s answered %s: is it the admin address (admin_listen)?", res.Request.URL.Host, res.Status)
	}
	kind, ok := kinds[p.Reason]
	if !ok {
		kind = task.Internal
	}
	e := &task.Error{Kind: kind, Msg: p.Detail}
	if e.Msg == "" {
		e.Msg = p.Title
	}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	if kind == task.Unauthenticated {
		e.Msg = "the server asks for a credential, or did not accept this one; set HOLDFAST_SERVER_CREDENTIAL_FILE or HOLDFAST_SERVER_CREDENTIAL"
	}
	return e
}

// Stream reads server-sent events until the stream ends, which is an error unless ctx ends. on gets each event.
func (c *Client) Stream(ctx context.Context, path string, query url.Values, on func(name, id string, data []byte) error) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	res, err := c.begin(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		return problem(res, raw)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxAnswer)
	var name, id string
	var data []byte
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			name = value
		case "id":
			id = value
		case "data":
			data = append(data, value...)
		case "":
			if lines.Text() == "" && name != "" {
				if err := on(name, id, data); err != nil {
					return err
				}
			}
			if lines.Text() == "" {
				name, data = "", nil
			}
		}
	}
	if err := lines.Err(); err != nil {
		return away(ctx, err)
	}
	if ctx.Err() != nil {
		return away(ctx, ctx.Err())
	}
	return &task.Error{Kind: task.Unavailable, Msg: "the stream was cut off"}
}
