package checks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
)

// attack is a request that no client should send.
type attack struct {
	name string
	body string
	// codes are the errors of JSON-RPC that say what is wrong; nil: any but an internal one, and a server may accept it.
	codes []int
}

// The codes of JSON-RPC.
const (
	parseError     = -32700
	invalidRequest = -32600
	noMethod       = -32601
	invalidParams  = -32602
	internalError  = -32603
)

// attacks are bodies for JSON-RPC. SEND and GET are the names of methods, PART is a part of a message.
func attacks() []attack {
	send := func(message string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"SEND","params":{"message":` + message + `}}`
	}
	get := func(params string) string { return `{"jsonrpc":"2.0","id":1,"method":"GET","params":` + params + `}` }
	deep := strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000)
	return []attack{
		{"an empty body", ``, []int{parseError, invalidRequest}},
		{"half a document", `{"jsonrpc":"2.0","id":1,"method":"GET","par`, []int{parseError}},
		{"text", `hello`, []int{parseError}},
		{"bytes that are no UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"GET\",\"params\":{\"id\":\"\xff\xfe\"}}", nil},
		{"a number", `17`, []int{invalidRequest, parseError}},
		{"null", `null`, []int{invalidRequest, parseError}},
		{"no method", `{"jsonrpc":"2.0","id":1,"params":{}}`, []int{invalidRequest, noMethod}},
		{"an unknown method", `{"jsonrpc":"2.0","id":1,"method":"torture/none","params":{}}`, []int{noMethod}},
		{"a method that is a number", `{"jsonrpc":"2.0","id":1,"method":17,"params":{}}`, []int{invalidRequest, noMethod}},
		{"params that are text", get(`"x"`), []int{invalidParams, invalidRequest}},
		{"no id of a task", get(`{}`), []int{invalidParams, -32001}},
		{"an id of a task that is an object", get(`{"id":{"a":1}}`), []int{invalidParams, invalidRequest, -32001}},
		{"an id of a task with a path", get(`{"id":"../../etc/passwd"}`), []int{-32001, invalidParams}},
		{"an id of a task with SQL", get(`{"id":"' OR 1=1 --"}`), []int{-32001, invalidParams}},
		{"an id of a task with NUL", get(`{"id":"a\u0000b"}`), []int{-32001, invalidParams}},
		{"a long id of a task", get(`{"id":"` + strings.Repeat("x", 1<<20) + `"}`), []int{-32001, invalidParams, invalidRequest}},
		{"no message", `{"jsonrpc":"2.0","id":1,"method":"SEND","params":{}}`, []int{invalidParams}},
		{"a message that is a list", send(`[]`), []int{invalidParams, invalidRequest}},
		{"a message without parts", send(`{"ROLE,"messageId":"m"}`), []int{invalidParams}},
		{"parts that are an object", send(`{"ROLE,"messageId":"m","parts":{"text":"x"}}`), []int{invalidParams, invalidRequest}},
		{"a message for a task that does not exist", send(`{"ROLE,"messageId":"m","taskId":"` + nobody + `","parts":[PART]}`), []int{-32001, invalidParams}},
		{"a long id of a context", send(`{"ROLE,"messageId":"m","contextId":"` + strings.Repeat("x", 4<<10) + `","parts":[PART]}`), nil},
		{"a deep document", send(`{"ROLE,"messageId":"m","parts":[PART],"metadata":` + deep + `}`), []int{parseError, invalidRequest, invalidParams}},
		{"a negative length of the history", get(`{"id":"` + nobody + `","historyLength":-1}`), []int{-32001, invalidParams}},
		{"a huge number", get(`{"id":"` + nobody + `","historyLength":1e400}`), []int{-32001, invalidParams, parseError, invalidRequest}},
	}
}

// hostileInput sends wrong requests to each address, and then right ones.
func hostileInput(ctx context.Context, p *probe) {
	for _, at := range p.peers {
		if at.c.Binding() != client.JSONRPC {
			p.skip("the attacks are requests of JSON-RPC; the run uses %s", at.c.Binding())
			return
		}
		words := strings.NewReplacer("SEND", "message/send", "GET", "tasks/get", "PART", `{"kind":"text","text":"torture"}`, `{"ROLE`, `{"kind":"message","role":"user"`)
		if at.modern() {
			words = strings.NewReplacer("SEND", "SendMessage", "GET", "GetTask", "PART", `{"text":"torture"}`, `{"ROLE`, `{"role":"ROLE_USER"`)
		}
		for _, a := range attacks() {
			p.attack(ctx, at, a.name, words.Replace(a.body), a.codes)
		}
		m, _ := message(p.o.Scripts.echoes("alive"), place{})
		e, err := at.send(ctx, m)
		switch {
		case err != nil:
			p.violation("", "after the attacks, %s refuses a right message: %v", at, err)
		case !strings.Contains(allText(e.Task), "alive"):
			p.violation(e.TaskID, "after the attacks, task %s has no answer: it is %s", e.TaskID, e.State())
		}
	}
}

func (p *probe) attack(ctx context.Context, at *peer, name, body string, codes []int) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.c.URL(), bytes.NewReader([]byte(body)))
	if err != nil {
		p.unsure("%s: %v", name, err)
		return
	}
	maps.Copy(req.Header, p.o.Header)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("A2A-Version", at.c.Version())
	req.Header.Set(attackHeader, name)
	about := attackHeader + ": " + name + "\n"
	p.count("attacks", 1)
	resp, err := (&http.Client{Transport: p.wire}).Do(req)
	if err != nil {
		p.violated("", about, "%s: %s gave no answer: %v", name, at, err)
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		p.violated("", about, "%s: the answer broke off: %v", name, err)
		return
	}
	if problem := wrong(resp.StatusCode, text, codes); problem != "" {
		p.violated("", about, "%s: %s", name, problem)
	}
}

// wrong says what is wrong with the answer to an attack, or "".
func wrong(status int, body []byte, codes []int) string {
	var answer struct {
		Result json.RawMessage
		Error  *struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Result == nil && answer.Error == nil {
		if status >= http.StatusInternalServerError {
			return fmt.Sprintf("HTTP %d: %.300s", status, body)
		}
		if status >= http.StatusBadRequest && len(body) > 0 {
			return "" // a server or a proxy before it may refuse without JSON-RPC
		}
		return fmt.Sprintf("the answer is not one of JSON-RPC: HTTP %d: %.300s", status, body)
	}
	switch {
	case answer.Error == nil && codes != nil:
		return fmt.Sprintf("it was accepted: %.300s", body)
	case answer.Error == nil:
	case answer.Error.Message == "":
		return fmt.Sprintf("the error %d has no message", answer.Error.Code)
	case answer.Error.Code == internalError:
		return fmt.Sprintf("an internal error: %.300s", body)
	case codes != nil && !slices.Contains(codes, answer.Error.Code):
		return fmt.Sprintf("the error is %d, %q, and should be one of %v", answer.Error.Code, answer.Error.Message, codes)
	}
	return ""
}
