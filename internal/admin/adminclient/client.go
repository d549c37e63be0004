// Package adminclient is a client of the admin API, with the types of docs/admin-api.yaml that the command line reads.
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

	"github.com/holdfast-a2a/holdfast/internal/admin/doctor"
	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Client calls the admin API of one server. Its methods may be called from many goroutines. Their errors are those of the server,
// with the Kind that fits; task.Unavailable also says that no server answered.
type Client struct {
	base       string
	credential string
	http       *http.Client
}

// New makes a client for an admin address, such as http://127.0.0.1:9090. credential is an API key or a token, or "".
func New(server, credential string) *Client {
	c := &Client{base: strings.TrimSuffix(server, "/") + "/admin/v1", credential: credential}
	// A redirect would take the credential, and a write, elsewhere.
	c.http = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c
}

// Trust makes the client accept servers whose certificates these authorities have signed, and no others.
func (c *Client) Trust(authorities *x509.CertPool) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	c.http.Transport = transport
}

// Task is a task as a list has it.
type Task struct {
	ID        string    `json:"id"`
	TaskID    string    `json:"task_id"`
	Agent     string    `json:"agent"`
	Tenant    string    `json:"tenant"`
	Owner     string    `json:"owner"`
	ContextID string    `json:"context_id"`
	Dialect   string    `json:"dialect"`
	State     string    `json:"state"`
	StatusAt  time.Time `json:"status_at"`
	CreatedAt time.Time `json:"created_at"`
	LastSeq   task.Seq  `json:"last_seq"`
	Direct    bool      `json:"direct,omitempty"`
	TraceID   string    `json:"trace_id,omitempty"`
	RetriedAs string    `json:"retried_as,omitempty"`
	// Attempt and the others are required by the document.
	Attempt       int   `json:"attempt"`
	Runs          int   `json:"runs"`
	Turns         int   `json:"turns"`
	Pending       int   `json:"pending"`
	ArtifactBytes int64 `json:"artifact_bytes"`
}

// TaskDetail is one task.
type TaskDetail struct {
	Task
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// TasksPage is a page of tasks. Next is the before of the next one.
type TasksPage struct {
	Tasks []Task `json:"tasks"`
	Next  string `json:"next,omitempty"`
}

// Event is an event of a log, as it is stored.
type Event struct {
	Seq        task.Seq        `json:"seq"`
	Kind       string          `json:"kind"`
	At         time.Time       `json:"at"`
	Attempt    int             `json:"attempt"`
	State      string          `json:"state,omitempty"`
	ArtifactID string          `json:"artifact_id,omitempty"`
	Append     bool            `json:"append,omitempty"`
	Last       bool            `json:"last,omitempty"`
	Payload    json.RawMessage `json:"payload,omitempty"`
}

// LogPage is a page of a log.
type LogPage struct {
	Events []Event  `json:"events"`
	Next   task.Seq `json:"next,omitempty"`
}

// Lineage has the calls of a task, and the one that created it.
type Lineage struct {
	CalledBy string       `json:"called_by,omitempty"`
	CallID   string       `json:"call_id,omitempty"`
	Calls    []shown.Call `json:"calls"`
}

// WebhooksPage is a page of webhooks.
type WebhooksPage struct {
	Webhooks []shown.Push `json:"webhooks"`
	Next     string       `json:"next,omitempty"`
}

// Attempts are attempts to deliver.
type Attempts struct {
	Attempts []shown.Attempt `json:"attempts"`
}

// Acted is the answer of an action.
type Acted struct {
	Outcome       string `json:"outcome"`
	NewTask       string `json:"new_task,omitempty"`
	ExportedLines int    `json:"exported_lines,omitempty"`
}

// Plan is what retention would delete now.
type Plan struct {
	Steps []shown.Step `json:"steps"`
}

// Findings are those of doctor.
type Findings struct {
	Status doctor.Status    `json:"status"`
	Checks []doctor.Finding `json:"checks"`
}

// AuditRow is a row of the audit log.
type AuditRow struct {
	At      time.Time       `json:"at"`
	Chain   int             `json:"chain"`
	N       int64           `json:"n"`
	Login   string          `json:"login"`
	Entries json.RawMessage `json:"entries"`
}

// AuditPage is a page of the audit log.
type AuditPage struct {
	Rows []AuditRow `json:"rows"`
	Next string     `json:"next,omitempty"`
}

// KeysPage is a page of API keys.
type KeysPage struct {
	Keys     []shown.Key `json:"keys"`
	Accepted bool        `json:"accepted"`
	Next     string      `json:"next,omitempty"`
}

// Agent is an agent of the server's configuration.
type Agent struct {
	Name        string     `json:"name"`
	Default     bool       `json:"default,omitempty"`
	Kind        string     `json:"kind"`
	Concurrency int        `json:"concurrency,omitzero"` // 0: that of its remote workers
	MaxAttempts int        `json:"max_attempts"`
	Away        *Away      `json:"away,omitempty"`
	Queue       *Depths    `json:"queue,omitempty"`   // nil: the operator sees one tenant only
	Workers     *int       `json:"workers,omitempty"` // connected ones, of an agent of the kind worker
	Signature   *Signature `json:"signature,omitempty"`
}

// Away says since when an agent does not begin runs.
type Away struct {
	Since  time.Time `json:"since"`
	LastAt time.Time `json:"last_at"`
	Error  string    `json:"error,omitempty"`
}

// Depths count the tasks of an agent.
type Depths struct {
	Waiting       int64   `json:"waiting"`
	Running       int64   `json:"running"`
	Timers        int64   `json:"timers"`
	Calls         int64   `json:"calls"`
	Parked        int64   `json:"parked"`
	OldestSeconds float64 `json:"oldest_seconds"`
}

// Signature says whether clients can verify the card of an agent.
type Signature struct {
	Status    string `json:"status"`
	KeyID     string `json:"key_id,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	Detail    string `json:"detail,omitempty"`
}

// Agents are the agents of the configuration.
type Agents struct {
	Agents []Agent `json:"agents"`
}

// AgentDetail is an agent with its card.
type AgentDetail struct {
	Agent
	Card json.RawMessage `json:"card,omitempty"`
}

// Job is a job.
type Job struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Matched int    `json:"matched"`
	Done    int    `json:"done"`
	Skipped int    `json:"skipped"`
	Failed  int    `json:"failed"`
}

// Changed is a task of a live list.
type Changed struct {
	Task    Task `json:"task"`
	Matches bool `json:"matches"`
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
	path := "/tasks/" + url.PathEscape(id)
	for _, p := range parts {
		path += "/" + url.PathEscape(p)
	}
	return path
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
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
	return away(ctx, io.ErrUnexpectedEOF)
}
