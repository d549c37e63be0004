package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The binding's own errors. No operation returns them.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeContentType    = -32005
)

// nullID is the id of an answer to a request with an unreadable id.
const nullID = "null"

// envelope is a JSON-RPC request. id keeps its literal: the answer to 1 has the id 1.
type envelope struct {
	id      string
	method  string
	params  []byte // a slice of the body
	refused error  // a fault within params that every version refuses
}

// maxIDSize bounds an id, in bytes: every document of a stream repeats it.
const maxIDSize = 4096

// rpcError is a JSON-RPC error object.
type rpcError struct {
	code    int
	message string
}

// parse reads a request in the order of checks that suits every version. It returns the envelope
// even with an error, for its id. Halves of surrogate pairs become U+FFFD.
func parse(body []byte, maxDepth int) (*envelope, *rpcError) {
	env := &envelope{id: nullID}
	body, _ = rawjson.Repair(body)
	refused := rawjson.Check(body, maxDepth)
	// Check stops at the first fault. Read the rest as well: it may contain the id, so that the
	// client knows which request failed, or a worse fault.
	unread := env.read(body)
	if refused == nil && unread == nil {
		return env, nil
	}
	return env.judge(refused, unread, maxDepth)
}

// judge picks the fault that comes first in the order of checks.
func (env *envelope) judge(refused, unread error, maxDepth int) (*envelope, *rpcError) {
	var strict *rawjson.Error
	if errors.As(refused, &strict) && strict.Syntax {
		return &envelope{id: nullID}, &rpcError{codeParse, "Invalid JSON payload: " + refused.Error()}
	}
	var syntax *jsontext.SyntacticError
	tooDeep := errors.As(unread, &syntax) && strict != nil && strings.Count(string(syntax.JSONPointer), "/") > maxDepth
	switch {
	case syntax != nil && !tooDeep:
		return &envelope{id: nullID}, &rpcError{codeParse, "Invalid JSON payload: " + unread.Error()}
	case strict != nil && !strict.InParams():
		return env, &rpcError{codeInvalidRequest, "Request payload validation error: " + strict.Error()}
	case tooDeep && env.method == "": // it comes after the params
		return env, &rpcError{codeInvalidParams, "Invalid parameters: " + strict.Error()}
	case unread != nil && !tooDeep:
		return env, &rpcError{codeInvalidRequest, "Request payload validation error: " + unread.Error()}
	}
	env.refused = task.InvalidField(strings.TrimPrefix(strict.Path, "params."), "%s", strict.Msg)
	return env, nil
}

// read reads the members. It continues after a fault, because the id may come last.
func (env *envelope) read(body []byte) error {
	var fault error
	blame := func(complaint string) {
		if fault == nil {
			fault = errors.New(complaint)
		}
	}
	version := ""
	err := members(body, func(name string, v jsontext.Value) {
		switch name {
		case "jsonrpc":
			version = unquote(v)
		case "id":
			switch k := v.Kind(); {
			case k != '"' && k != 'n' && k != '0':
				blame("id: must be a string, a number or null")
			case len(v) > maxIDSize:
				blame("id: must not be longer than " + strconv.Itoa(maxIDSize) + " bytes")
			default:
				env.id = string(v)
			}
		case "method":
			if env.method = unquote(v); env.method == "" {
				blame("method: must be a non-empty string")
			}
		case "params":
			if v.Kind() != 'n' { // null counts as absent
				env.params = v
			}
		}
	})
	switch {
	case err != nil:
		return err
	case version != "2.0":
		return errors.New(`jsonrpc: must be "2.0"`)
	case fault != nil:
		return fault
	case env.method == "":
		return errors.New("method: is required")
	}
	return nil
}

// members visits the members of an object. The values are slices of the body.
func members(body []byte, visit func(name string, v jsontext.Value)) error {
	switch k := jsontext.Value(body).Kind(); k {
	case '{':
	case '[':
		return errors.New("batches are not part of A2A: send one request object")
	default:
		return errors.New("the request must be an object")
	}
	r := readers.Get().(*reader)
	defer r.release()
	r.src = *bytes.NewBuffer(body)
	r.dec.Reset(&r.src, duplicates)
	if _, err := r.dec.ReadToken(); err != nil {
		return err
	}
	var name [32]byte
	for r.dec.PeekKind() != '}' {
		raw, err := r.dec.ReadValue()
		if err != nil {
			return err
		}
		key, _ := jsontext.AppendUnquote(name[:0], raw)
		v, err := r.dec.ReadValue()
		if err != nil {
			return err
		}
		end := r.dec.InputOffset()
		visit(string(key), jsontext.Value(body[end-int64(len(v)):end]))
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return err
	}
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &jsontext.SyntacticError{ByteOffset: r.dec.InputOffset(), Err: errors.New("more than one JSON value")}
	}
	return nil
}

// duplicates is set because rawjson.Check has already checked for them.
var duplicates = jsontext.AllowDuplicateNames(true)

var readers = sync.Pool{New: func() any { return &reader{dec: new(jsontext.Decoder)} }}

type reader struct {
	dec *jsontext.Decoder
	src bytes.Buffer
}

// release returns the reader to the pool, without the body.
func (r *reader) release() {
	r.src = bytes.Buffer{}
	r.dec.Reset(&r.src)
	readers.Put(r)
}

// unquote returns the string in a value, or "" if it is no string.
func unquote(v jsontext.Value) string {
	if v.Kind() != '"' {
		return ""
	}
	var short [64]byte
	b, _ := jsontext.AppendUnquote(short[:0], v)
	return string(b)
}
