package rest

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/body"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/proto"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
	"github.com/holdfast-a2a/holdfast/internal/rpc/strictjson"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// params is the request message as JSON. What the path says stands in it whatever
// query or body have by that name.
func (x *exchange) params() ([]byte, bool) {
	if x.R.Method == http.MethodPost {
		return x.ofBody()
	}
	// What a client sends beside a query means nothing, and is taken in all the same: net/http
	// would wait for it without a limit.
	if x.R.ContentLength != 0 {
		x.b.Limits.Begin(x.W)
		if _, bad := x.b.Limits.Read(x.W, x.R); bad != nil {
			x.unread(bad)
			return nil, false
		}
	}
	params, err := x.ofQuery()
	if err == nil {
		err = x.check(params)
	}
	if err != nil {
		x.Fail(err)
		return nil, false
	}
	return params, true
}

// ofBody reads the message that a body holds. Operations that the path says all about
// may have none: clients send nothing, null or {}.
func (x *exchange) ofBody() ([]byte, bool) {
	x.b.Limits.Begin(x.W)
	if !body.IsJSON(x.R.Header.Get("Content-Type")) {
		x.refuse(http.StatusUnsupportedMediaType, x.faults().Row(task.ContentType).Reason, "INVALID_ARGUMENT", codeContentType,
			"Incompatible content types: Content-Type must be application/json or application/a2a+json")
		return nil, false
	}
	content, bad := x.b.Limits.Read(x.W, x.R)
	if bad != nil {
		x.unread(bad)
		return nil, false
	}
	content = bytes.Trim(content, " \t\r\n")
	members := x.version.members(x.Target)
	if len(members) > 0 && x.Op != engine.OpPushSet && (len(content) == 0 || string(content) == "null") {
		content = []byte("{}")
	}
	if err := x.check(content); err != nil {
		x.Fail(err)
		return nil, false
	}
	if content[0] != '{' {
		x.Fail(task.InvalidField("body", "must be an object"))
		return nil, false
	}
	for _, m := range members {
		content = wire.Without(content, m.name)
		if m.field != "" {
			content = wire.Without(content, m.field)
		}
		content = wire.With(content, m.name, wire.AppendString(nil, m.value))
	}
	return content, true
}

// check refuses what no codec shall meet.
func (x *exchange) check(params []byte) error {
	err := strictjson.Check(params, x.b.Limits.Depth)
	var bad *strictjson.Error
	switch {
	case !errors.As(err, &bad):
		return err
	case bad.Syntax:
		return &syntaxError{bad}
	case bad.Path == "":
		return task.InvalidField("body", "%s", bad.Msg)
	}
	return task.InvalidField(bad.Path, "%s", bad.Msg)
}

// syntaxError is a body that is not JSON.
type syntaxError struct{ error }

// parameters are those of a query, by operation: whether each is true or false, and
// otherwise stands in quotes, where codecs read numbers too.
var parameters = map[engine.Op]map[string]bool{
	engine.OpGet: {"tenant": false, "historyLength": false},
	engine.OpList: {
		"tenant": false, "contextId": false, "status": false, "pageSize": false, "pageToken": false,
		"historyLength": false, "statusTimestampAfter": false, "includeArtifacts": true,
	},
	engine.OpSubscribe:    {"tenant": false},
	engine.OpPushGet:      {"tenant": false},
	engine.OpPushList:     {"tenant": false, "pageSize": false, "pageToken": false},
	engine.OpPushDelete:   {"tenant": false},
	engine.OpExtendedCard: {"tenant": false},
}

// aliases are names in use that no document has: the official Go client's.
var aliases = map[string]string{"lastUpdatedAfter": "statusTimestampAfter"}

// ofQuery makes a message of path and query. Parameters that an operation does not have
// are passed over.
func (x *exchange) ofQuery() ([]byte, error) {
	query, err := url.ParseQuery(x.R.URL.RawQuery)
	if err != nil {
		return nil, task.InvalidField("query", "%v", err)
	}
	params := []byte{'{'}
	add := func(name string, value []byte) {
		if len(params) > 1 {
			params = append(params, ',')
		}
		params = append(append(append(append(params, '"'), name...), '"', ':'), value...)
	}
	for _, m := range x.version.members(x.Target) {
		add(m.name, wire.AppendString(nil, m.value))
	}
	for _, given := range slices.Sorted(maps.Keys(query)) {
		name := string(proto.CamelCase([]byte(given)))
		if official, ok := aliases[name]; ok {
			name = official
		}
		isBool, known := parameters[x.Op][name]
		if !known || name == "tenant" && x.version != version10 { // which alone has them
			continue
		}
		for _, value := range query[given] { // a second one is found by the check
			if isBool && (value == "true" || value == "false") {
				add(name, []byte(value))
			} else {
				add(name, wire.AppendString(nil, value))
			}
		}
	}
	return append(params, '}'), nil
}
