package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/rpc/strictjson"
)

// The binding's own errors, which no operation raises.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeContentType    = -32005
	codeVersion        = -32009
)

// nullID is the id of an answer to a request whose id could not be read.
const nullID = "null"

// envelope is a JSON-RPC request. id keeps its literal: 1 is answered with 1.
type envelope struct {
	id     string
	method string
	params []byte
}

// rpcError is a JSON-RPC error object.
type rpcError struct {
	code    int
	message string
}

func (e *rpcError) Error() string { return e.message }

// parse reads a request in the order of checks that every dialect accepts. The
// envelope is returned even with an error, for its id.
func parse(body []byte, maxDepth int) (*envelope, *rpcError) {
	env := &envelope{id: nullID}
	var structure *rpcError
	if err := strictjson.Check(body, maxDepth); err != nil {
		var bad *strictjson.Error
		if !errors.As(err, &bad) || bad.Syntax {
			return env, &rpcError{codeParse, "Invalid JSON payload: " + err.Error()}
		}
		// Well-formed, but refused. Still find the id, so that the client knows which request failed.
		structure = &rpcError{codeInvalidRequest, "Request payload validation error: " + err.Error()}
		if bad.InParams() {
			structure = &rpcError{codeInvalidParams, "Invalid parameters: " + err.Error()}
		}
	}
	err := env.read(body)
	if structure != nil {
		return env, structure
	}
	if err != nil {
		return env, &rpcError{codeInvalidRequest, "Request payload validation error: " + err.Error()}
	}
	return env, nil
}

// read takes the members apart. It goes on after a fault, because the id may come last.
func (env *envelope) read(body []byte) error {
	var (
		fault   error
		version jsontext.Value
		blame   = func(format string, args ...any) {
			if fault == nil {
				fault = fmt.Errorf(format, args...)
			}
		}
	)
	err := members(body, func(name string, v jsontext.Value) {
		switch name {
		case "jsonrpc":
			version = v
		case "id":
			switch v.Kind() {
			case '"', 'n':
				env.id = string(v)
			case '0':
				if !integer(v) {
					blame("id: must be a string, an integer or null")
					return
				}
				env.id = string(v)
			default:
				blame("id: must be a string, an integer or null")
			}
		case "method":
			s, err := unquote(v)
			if err != nil || s == "" {
				blame("method: must be a non-empty string")
				return
			}
			env.method = s
		case "params":
			env.params = v
		}
	})
	switch {
	case err != nil:
		return err
	case string(version) != `"2.0"`:
		return errors.New(`jsonrpc: must be "2.0"`)
	case fault != nil:
		return fault
	case env.method == "":
		return errors.New("method: is required")
	}
	return nil
}

// members visits the members of an object.
func members(body []byte, visit func(name string, v jsontext.Value)) error {
	if k := jsontext.Value(body).Kind(); k != '{' {
		if k == '[' {
			return errors.New("batches are not part of A2A: send one request object")
		}
		return errors.New("must be an object")
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true))
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		v, err := d.ReadValue()
		if err != nil {
			return err
		}
		visit(key, v.Clone())
	}
	return nil
}

func integer(v jsontext.Value) bool {
	for i, c := range v {
		if (c < '0' || c > '9') && (i > 0 || c != '-') {
			return false
		}
	}
	return true
}

func unquote(v jsontext.Value) (string, error) {
	if v.Kind() != '"' {
		return "", errors.New("not a string")
	}
	b, err := jsontext.AppendUnquote(nil, v)
	return string(b), err
}
