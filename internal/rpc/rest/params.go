package rest

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/protojson"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// params returns the request message as JSON. Members from the path override those of the query or
// body.
func (x *exchange) params() ([]byte, bool) {
	if x.R.Method == http.MethodPost {
		return x.ofBody()
	}
	// A body next to a query has no meaning. Read it anyway, within limits: net/http would wait
	// for it without any.
	if x.R.ContentLength != 0 {
		x.Base.Limits.Begin(x.W)
		if _, bad := x.Base.Limits.Read(x.W, x.R, x.Account); bad != nil {
			x.unread(bad)
			return nil, false
		}
	}
	params, err := x.ofQuery()
	if err == nil {
		err = x.check(params)
	}
	if err != nil {
		x.Fail(x.Unread(x.tenant, err))
		return nil, false
	}
	return params, true
}

// ofBody reads the message in a body. For operations that the path describes fully, the body may be
// empty, null or {}.
func (x *exchange) ofBody() ([]byte, bool) {
	x.Base.Limits.Begin(x.W)
	if !web.IsJSON(x.R.Header.Get("Content-Type")) {
		x.refuse(http.StatusUnsupportedMediaType, x.faults().Row(task.ContentType).Reason, "INVALID_ARGUMENT", codeContentType,
			"Incompatible content types: Content-Type must be application/json or application/a2a+json")
		return nil, false
	}
	if err := x.Base.Operations.CountEarly(&x.Request, x.R.ContentLength); err != nil {
		x.W.Header().Set("Connection", "close")
		x.Fail(err)
		return nil, false
	}
	content, bad := x.Base.Limits.Read(x.W, x.R, x.Account)
	if bad != nil {
		x.unread(bad)
		return nil, false
	}
	content, _ = rawjson.Repair(bytes.Trim(content, " \t\r\n"))
	members := x.version.Members(&x.Resource)
	if len(members) > 0 && x.Op != engine.OpPushSet && (len(content) == 0 || string(content) == "null") {
		content = []byte("{}")
	}
	err := x.check(content)
	if err == nil && content[0] != '{' {
		err = task.InvalidField("body", "must be an object")
	}
	if err != nil {
		x.Fail(x.Unread(x.tenant, err))
		return nil, false
	}
	for _, m := range members {
		content = rawjson.Without(content, m.Name)
		if m.Field != "" {
			content = rawjson.Without(content, m.Field)
		}
		content = rawjson.With(content, m.Name, rawjson.AppendString(nil, m.Value))
	}
	return content, true
}

// check refuses JSON that no codec may see.
func (x *exchange) check(params []byte) error {
	err := rawjson.Check(params, x.Base.Limits.Depth)
	var bad *rawjson.Error
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

// parameters are the query parameters by operation. The value says whether a parameter is a
// boolean. Others become JSON strings; codecs also read numbers from strings.
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

// aliases are parameter names that no document has. The official Go client uses them.
var aliases = map[string]string{"lastUpdatedAfter": "statusTimestampAfter"}

// ofQuery makes a message from path and query. It ignores parameters that the operation does not
// have.
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
	for _, m := range x.version.Members(&x.Resource) {
		add(m.Name, rawjson.AppendString(nil, m.Value))
	}
	for _, given := range slices.Sorted(maps.Keys(query)) {
		name := string(protojson.CamelCase([]byte(given)))
		if official, ok := aliases[name]; ok {
			name = official
		}
		isBool, known := parameters[x.Op][name]
		if !known || name == "tenant" && !x.version.Traits().Tenants {
			continue
		}
		for _, value := range query[given] { // check refuses a second one
			if isBool && (value == "true" || value == "false") {
				add(name, []byte(value))
			} else {
				add(name, rawjson.AppendString(nil, value))
			}
		}
	}
	return append(params, '}'), nil
}
