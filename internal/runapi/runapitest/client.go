// Package runapitest is a client of the run API for tests. It compares each answer with docs/run-api.yaml.
package runapitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// Client acts for a run. It is what the run document says.
type Client struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// Answer is an answer of the run API.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte

	// Members of the documents that tests look at.
	Next   json.RawMessage
	Ended  bool
	Stop   string
	Reason string
	Detail string
	Field  string
	Line   int
	Data   json.RawMessage
	Entry  []Entry `json:"history"`
	Tasks  []Task  `json:"tasks"`
	Listed []struct {
		ArtifactID string
		Name       string
		Chunks     int
		Bytes      int
		Last       bool
	} `json:"artifacts"`
	Version int
	Parts   []Part
	Attempt int
	State   json.RawMessage
}

// Entry is an entry of a history.
type Entry struct {
	Role, ArtifactID, TaskID string
	Omitted                  int
	Parts                    []Part
}

// Part is a part with a text.
type Part struct{ Text string }

// Task is another task.
type Task struct{ ID, State string }

// Place is the next of a list.
func (a *Answer) Place() (place string) {
	_ = json.Unmarshal(a.Next, &place) // "" without one
	return place
}

// Ordinal is the next of an answer about events; -1 without one.
func (a *Answer) Ordinal() int {
	n := -1
	_ = json.Unmarshal(a.Next, &n)
	return n
}

// Do sends a request below the URL and checks the answer against the document. headers are names and values; the body's
// type is application/json unless they say something else.
func (c *Client) Do(t testing.TB, method, path, body string, headers ...string) *Answer {
	t.Helper()
	a, err := c.Try(t.Context(), method, path, strings.NewReader(body), headers...)
	require.NoError(t, err, "%s %s", method, path)
	return a
}

// Post posts events, an event per line.
func (c *Client) Post(t testing.TB, from int, events ...string) *Answer {
	t.Helper()
	return c.Do(t, http.MethodPost, fmt.Sprintf("/events?from=%d", from), strings.Join(events, "\n")+"\n", "Content-Type", "application/x-ndjson")
}

// Try is Do. It returns an error if there is no answer, or another one than the document has.
func (c *Client) Try(ctx context.Context, method, path string, body io.Reader, headers ...string) (*Answer, error) {
	q, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Authorization", "Bearer "+c.Token)
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	a := &Answer{Status: res.StatusCode, Header: res.Header}
	if a.Body, err = io.ReadAll(res.Body); err != nil {
		return nil, err
	}
	if err := check(method, path, a); err != nil {
		return nil, fmt.Errorf("%s %s: %d %s: %w", method, path, a.Status, a.Body, err)
	}
	if len(a.Body) > 0 {
		err = json.Unmarshal(a.Body, a)
	}
	return a, err
}

// document is docs/run-api.yaml, as far as answers are concerned.
type document struct {
	paths  map[string]map[string]any
	schema *jsonschema.Compiler
	mu     sync.Mutex // compilers are for one goroutine
}

const name = "run-api.json"

var read = sync.OnceValues(func() (*document, error) {
	_, here, _, _ := runtime.Caller(0)
	docs := filepath.Join(filepath.Dir(here), "..", "..", "..", "docs")
	raw, err := os.ReadFile(filepath.Join(docs, "run-api.yaml"))
	if err != nil {
		return nil, err
	}
	var parsed any
	if err := yaml.Unmarshal(raw, &parsed); err != nil {
		return nil, err
	}
	asJSON, err := json.Marshal(parsed)
	if err != nil {
		return nil, err
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return nil, err
	}
	d := &document{paths: map[string]map[string]any{}, schema: jsonschema.NewCompiler()}
	d.schema.DefaultDraft(jsonschema.Draft2020)
	d.schema.AssertFormat()
	base := "file://" + docs + "/"
	if err := d.schema.AddResource(base+name, whole); err != nil {
		return nil, err
	}
	for path, item := range whole.(map[string]any)["paths"].(map[string]any) {
		d.paths[path] = item.(map[string]any)
	}
	d.paths["base"] = map[string]any{"url": base}
	return d, nil
})

// Operation is an operation of the document, with names in the place of the path's parameters.
type Operation struct{ Method, Path string }

// Operations lists the operations of the document.
func Operations() ([]Operation, error) {
	d, err := read()
	if err != nil {
		return nil, err
	}
	var all []Operation
	for path, item := range d.paths {
		for method := range item {
			if verb := strings.ToUpper(method); slices.Contains([]string{"GET", "PUT", "POST", "DELETE"}, verb) {
				all = append(all, Operation{verb, strings.NewReplacer("{scope}", "task", "{", "", "}", "").Replace(path)})
			}
		}
	}
	return all, nil
}

// check compares an answer with the document.
func check(method, path string, a *Answer) error {
	d, err := read()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	plain, _, _ := strings.Cut(path, "?")
	found := ""
	for pattern := range d.paths {
		if pattern != "base" && matches(pattern, plain) {
			found = pattern
		}
	}
	operation, ok := d.paths[found][strings.ToLower(method)].(map[string]any)
	if !ok || found == "" && plain != "" {
		if a.Status != http.StatusNotFound && a.Status != http.StatusMethodNotAllowed {
			return fmt.Errorf("the document has no %s %s", method, plain)
		}
		return d.validate("#/components/schemas/problem", a.Body)
	}
	pointer := "#/paths/" + escape(found) + "/" + strings.ToLower(method) + "/responses/"
	responses := operation["responses"].(map[string]any)
	key := fmt.Sprint(a.Status)
	if responses[key] == nil {
		if a.Status < 400 {
			return fmt.Errorf("the document has no answer %s", key)
		}
		key = "default"
	}
	response := responses[key].(map[string]any)
	pointer += key
	if ref, ok := response["$ref"].(string); ok {
		if ref != "#/components/responses/problem" {
			return fmt.Errorf("unknown reference %s", ref)
		}
		pointer, response = ref, map[string]any{"content": map[string]any{"application/problem+json": nil}}
	}
	content, _ := response["content"].(map[string]any)
	if content == nil {
		if len(a.Body) > 0 {
			return fmt.Errorf("the document has no body")
		}
		return nil
	}
	media, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if _, ok := content[media]; !ok {
		return fmt.Errorf("the document has no content type %q", media)
	}
	return d.validate(pointer+"/content/"+escape(media)+"/schema", a.Body)
}

func (d *document) validate(pointer string, body []byte) error {
	schema, err := d.schema.Compile(d.paths["base"]["url"].(string) + name + pointer)
	if err != nil {
		return err
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return schema.Validate(instance)
}

// matches reports whether a path is one of a pattern such as /tasks/{taskId}.
func matches(pattern, path string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if want[i] != have[i] && (!strings.HasPrefix(want[i], "{") || have[i] == "") {
			return false
		}
	}
	return true
}

// escape writes a member for a JSON pointer in a URL.
func escape(member string) string {
	member = strings.NewReplacer("~", "~0", "/", "~1").Replace(member)
	return url.PathEscape(member)
}
