package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// documents are the OpenAPI documents and the schema of events.
type documents struct {
	base     string
	compiler *jsonschema.Compiler
	apis     map[string]map[string]any // by file
	mu       sync.Mutex                // compilers are for one goroutine
	compiled map[string]*jsonschema.Schema
}

// The files of the APIs, by the prefix of their paths.
var files = map[string]string{"/worker/v1": "worker-api.yaml", "/run/v1": "run-api.yaml"}

var read = sync.OnceValues(func() (*documents, error) {
	docs, err := filepath.Abs("../../docs")
	if err != nil {
		return nil, err
	}
	d := &documents{
		base: "file://" + docs + "/", compiler: jsonschema.NewCompiler(), apis: map[string]map[string]any{}, compiled: map[string]*jsonschema.Schema{},
	}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	for _, file := range files {
		raw, err := os.ReadFile(filepath.Join(docs, file))
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
		if err := d.compiler.AddResource(d.base+file+".json", whole); err != nil {
			return nil, err
		}
		d.apis[file] = whole.(map[string]any)
	}
	return d, nil
})

// place is an operation of a document.
type place struct {
	file, pointer string
	operation     map[string]any
	path          map[string]any
}

// find returns the operation of a request.
func (d *documents) find(method, path string) (*place, error) {
	for prefix, file := range files {
		rest, ok := strings.CutPrefix(path, prefix)
		if !ok {
			continue
		}
		for pattern, item := range d.apis[file]["paths"].(map[string]any) {
			if !matches(pattern, rest) {
				continue
			}
			of := item.(map[string]any)
			operation, ok := of[strings.ToLower(method)].(map[string]any)
			if !ok {
				return nil, fmt.Errorf("%s has no %s %s", file, method, rest)
			}
			return &place{file, "#/paths/" + escape(pattern) + "/" + strings.ToLower(method), operation, of}, nil
		}
		return nil, fmt.Errorf("%s has no path %s", file, rest)
	}
	return nil, fmt.Errorf("no document has the path %s", path)
}

// query checks the parameters of a request.
func (d *documents) query(p *place, values url.Values) error {
	known := map[string]bool{}
	var all []any
	for _, of := range []map[string]any{p.path, p.operation} {
		list, _ := of["parameters"].([]any)
		all = append(all, list...)
	}
	for _, entry := range all {
		parameter := entry.(map[string]any)
		if ref, ok := parameter["$ref"].(string); ok {
			name := strings.TrimPrefix(ref, "#/components/parameters/")
			parameter = d.apis[p.file]["components"].(map[string]any)["parameters"].(map[string]any)[name].(map[string]any)
		}
		if parameter["in"] != "query" {
			continue
		}
		name := parameter["name"].(string)
		known[name] = true
		if parameter["required"] == true && values.Get(name) == "" {
			return fmt.Errorf("the parameter %s is missing", name)
		}
	}
	for name := range maps.Keys(values) {
		if !known[name] {
			return fmt.Errorf("the parameter %s is unknown", name)
		}
	}
	return nil
}

// body checks the body of a request.
func (d *documents) body(p *place, media string, body []byte) error {
	request, _ := p.operation["requestBody"].(map[string]any)
	if request == nil {
		if len(body) > 0 {
			return fmt.Errorf("the request has a body")
		}
		return nil
	}
	if request["content"].(map[string]any)[media] == nil {
		return fmt.Errorf("the content type is %q", media)
	}
	return d.validate(p.file+".json"+p.pointer+"/requestBody/content/"+escape(media)+"/schema", body)
}

// event checks an event.
func (d *documents) event(line []byte) error {
	return d.validate("executor.schema.json#/$defs/event", line)
}

// answer checks an answer of the scripted server, so that it asks nothing of SDKs that a server may not do.
func (d *documents) answer(p *place, status int, body []byte) error {
	responses := p.operation["responses"].(map[string]any)
	key := fmt.Sprint(status)
	media := "application/json"
	if status >= http.StatusBadRequest {
		media = "application/problem+json"
		if responses[key] == nil {
			return d.validate(p.file+".json#/components/schemas/problem", body)
		}
	}
	if responses[key] == nil {
		return fmt.Errorf("the document has no answer %d", status)
	}
	return d.validate(p.file+".json"+p.pointer+"/responses/"+key+"/content/"+escape(media)+"/schema", body)
}

func (d *documents) validate(pointer string, body []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	schema := d.compiled[pointer]
	if schema == nil {
		var err error
		if schema, err = d.compiler.Compile(d.base + pointer); err != nil {
			return err
		}
		d.compiled[pointer] = schema
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
	return url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(member))
}
