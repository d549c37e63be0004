package http

import (
	"bytes"
	"errors"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// recognize returns which kind of executor an answer needs instead, as the end of a message. It returns "" for an answer that
// may be of an agent of this kind.
func recognize(answer []byte) string {
	var head struct {
		JSONRPC jsontext.Value `json:"jsonrpc"` // A2A, over JSON-RPC
		Object  jsontext.Value `json:"object"`  // OpenAI
		Type    jsontext.Value `json:"type"`    // an event of ours
		Error   jsontext.Value `json:"error"`
	}
	if json.Unmarshal(answer, &head) != nil || head.Type != nil {
		return ""
	}
	var failed struct {
		Type    jsontext.Value `json:"type"`
		Param   jsontext.Value `json:"param"`
		Message jsontext.Value `json:"message"`
	}
	_ = json.Unmarshal(head.Error, &failed) // it may be a text
	object := strings.Trim(string(head.Object), `"`)
	switch {
	// Over HTTP+JSON, errors of A2A name its domain in their details.
	case string(head.JSONRPC) == `"2.0"`, bytes.Contains(head.Error, []byte(`"a2a-protocol.org"`)):
		return "; the endpoint speaks A2A: use executor.kind a2a, with a2a.card_url"
	case strings.HasPrefix(object, "chat.completion"), object == "response", failed.Message != nil && failed.Type != nil && failed.Param != nil:
		return "; the endpoint speaks the API of OpenAI: use executor.kind openai, with openai.base_url and openai.model"
	}
	return ""
}

// recognized adds to the failure of a run what the endpoint is instead.
func recognized(err error, answer []byte) error {
	var failure *executor.Failure
	if !errors.As(err, &failure) {
		return err
	}
	if hint := recognize(answer); hint != "" {
		return &executor.Failure{Msg: failure.Msg + hint, Cause: failure.Cause}
	}
	return err
}
