// Package openapitest compares the requests and answers of an API with its OpenAPI document.
package openapitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// Document is a document in docs. It is safe for concurrent use.
type Document struct {
	File string // its name
	// Exact says that answers must not have members that the document does not have.
	Exact bool

	mu         sync.Mutex // compilers are for one goroutine
	folder     string
	paths      map[string]map[string]any
	parameters map[string]any // by name, for references
	schema     *jsonschema.Compiler
}

// Operation is an operation of a document.
type Operation struct {
	Method, Path string
	Right        string // x-right
	AllTenants   bool   // x-all-tenants
}

// read reads the document at the first call. The caller holds the lock.
func (d *Document) read() error {
	if d.schema != nil {
		return nil
	}
	_, here, _, _ := runtime.Caller(0)
	docs := filepath.Join(filepath.Dir(here), "..", "..", "..", "docs")
	raw, err := os.ReadFile(filepath.Join(docs, d.File))
	if err != nil {
		return err
	}
	var parsed any
	if err := yaml.Unmarshal(raw, &parsed); err != nil {
		return err
	}
	asJSON, err := json.Marshal(parsed)
	if err != nil {
		return err
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return err
	}
	if d.Exact {
		for _, s := range whole.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any) {
			if s, ok := s.(map[string]any); ok && s["properties"] != nil {
				s["additionalProperties"] = false
			}
		}
	}
	schema := jsonschema.NewCompiler()
	schema.DefaultDraft(jsonschema.Draft2020)
	schema.AssertFormat()
	d.folder = "file://" + docs + "/"
	if err := schema.AddResource(d.folder+d.File+".json", whole); err != nil {
		return err
	}
	d.paths = map[string]map[string]any{}
	for path, item := range whole.(map[string]any)["paths"].(map[string]any) {
		d.paths[path] = item.(map[string]any)
	}
	d.parameters, _ = whole.(map[string]any)["components"].(map[string]any)["parameters"].(map[string]any)
	d.schema = schema
	return nil
}

// Operations lists the operations of the document.
func (d *Document) Operations() ([]Operation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.read(); err != nil {
		return nil, err
	}
	var all []Operation
	for path, item := range d.paths {
		for method, operation := range item {
			if verb := strings.ToUpper(method); slices.Contains([]string{"GET", "PUT", "POST", "DELETE"}, verb) {
				o := Operation{Method: verb, Path: path}
				o.Right, _ = operation.(map[string]any)["x-right"].(string)
				o.AllTenants, _ = operation.(map[string]any)["x-all-tenants"].(bool)
				all = append(all, o)
			}
		}
	}
	return all, nil
}

// find returns the operation of a request, with its pointer. The operation is nil if the document does not have it. The caller holds the lock.
func (d *Document) find(method, path string) (pointer string, operation, item map[string]any) {
	plain, _, _ := strings.Cut(path, "?")
	found, best := "", -1
	for pattern := range d.paths {
		// Of several patterns, the one with fewer parameters is meant.
		if matches(pattern, plain) && (best < 0 || strings.Count(pattern, "{") < best) {
			found, best = pattern, strings.Count(pattern, "{")
		}
	}
	if found != "" || plain == "" {
		item = d.paths[found]
		operation, _ = item[strings.ToLower(method)].(map[string]any)
	}
	return "#/paths/" + escape(found) + "/" + strings.ToLower(method), operation, item
}

// CheckTarget looks for the operation of a request, and compares its query with the document.
func (d *Document) CheckTarget(method, path string, query url.Values) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.read(); err != nil {
		return err
	}
	_, operation, item := d.find(method, path)
	if operation == nil {
		return fmt.Errorf("%s has no %s %s", d.File, method, path)
	}
	known := map[string]bool{}
	for _, of := range []map[string]any{item, operation} {
		list, _ := of["parameters"].([]any)
		for _, entry := range list {
			parameter := entry.(map[string]any)
			if ref, ok := parameter["$ref"].(string); ok {
				parameter = d.parameters[strings.TrimPrefix(ref, "#/components/parameters/")].(map[string]any)
			}
			if parameter["in"] != "query" {
				continue
			}
			name := parameter["name"].(string)
			known[name] = true
			if parameter["required"] == true && query.Get(name) == "" {
				return fmt.Errorf("the parameter %s is missing", name)
			}
		}
	}
	for name := range query {
		if !known[name] {
			return fmt.Errorf("the parameter %s is unknown", name)
		}
	}
	return nil
}

// CheckBody compares the body of a request with the document.
func (d *Document) CheckBody(method, path, media string, body []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.read(); err != nil {
		return err
	}
	pointer, operation, _ := d.find(method, path)
	request, _ := operation["requestBody"].(map[string]any)
	if request == nil {
		if len(body) > 0 {
			return fmt.Errorf("the request has a body")
		}
		return nil
	}
	if request["content"].(map[string]any)[media] == nil {
		return fmt.Errorf("the content type is %q", media)
	}
	return d.validate(pointer+"/requestBody/content/"+escape(media)+"/schema", body)
}

// Check compares an answer with the document.
func (d *Document) Check(method, path string, status int, header http.Header, body []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.read(); err != nil {
		return err
	}
	pointer, operation, _ := d.find(method, path)
	if operation == nil {
		if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			return fmt.Errorf("the document has no %s %s", method, path)
		}
		if media, _, _ := mime.ParseMediaType(header.Get("Content-Type")); media != "application/problem+json" {
			return fmt.Errorf("the document has no content type %q", media)
		}
		return d.validate("#/components/schemas/problem", body)
	}
	responses := operation["responses"].(map[string]any)
	key := fmt.Sprint(status)
	if responses[key] == nil {
		if status < 400 {
			return fmt.Errorf("the document has no answer %s", key)
		}
		key = "default"
	}
	response := responses[key].(map[string]any)
	pointer += "/responses/" + key
	if ref, ok := response["$ref"].(string); ok {
		if ref != "#/components/responses/problem" {
			return fmt.Errorf("unknown reference %s", ref)
		}
		pointer, response = ref, map[string]any{"content": map[string]any{"application/problem+json": nil}}
	}
	content, _ := response["content"].(map[string]any)
	if content == nil {
		if len(body) > 0 {
			return fmt.Errorf("the document has no body")
		}
		return nil
	}
	media, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	if _, ok := content[media]; !ok {
		return fmt.Errorf("the document has no content type %q", media)
	}
	return d.validate(pointer+"/content/"+escape(media)+"/schema", body)
}

// CheckAs compares a JSON value with a schema of the document, or with one of another document: executor.schema.json#/$defs/event.
func (d *Document) CheckAs(schema string, value []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.read(); err != nil {
		return err
	}
	if !strings.Contains(schema, "#") {
		schema = "#/components/schemas/" + schema
	}
	return d.validate(schema, value)
}

func (d *Document) validate(pointer string, body []byte) error {
	if pointer[0] == '#' {
		pointer = d.File + ".json" + pointer
	}
	schema, err := d.schema.Compile(d.folder + pointer)
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
