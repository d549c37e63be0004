package rest

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/httpjson"
)

// Target is the destination of a path.
type Target struct {
	httpjson.Resource
	version *httpjson.Version
	tenant  string // "" where the path names none
	// verbs are the operations, by verb. Nil for a path that begins like a version's paths but is
	// none of them.
	verbs verbs
}

// verbs are the operations of one path.
type verbs map[string]engine.Op

var (
	sendVerbs      = verbs{http.MethodPost: engine.OpSend}
	streamVerbs    = verbs{http.MethodPost: engine.OpStream}
	tasksVerbs     = verbs{http.MethodGet: engine.OpList}
	taskVerbs      = verbs{http.MethodGet: engine.OpGet}
	cancelVerbs    = verbs{http.MethodPost: engine.OpCancel}
	configsVerbs   = verbs{http.MethodGet: engine.OpPushList, http.MethodPost: engine.OpPushSet}
	configVerbs    = verbs{http.MethodGet: engine.OpPushGet, http.MethodDelete: engine.OpPushDelete}
	cardVerbs      = verbs{http.MethodGet: engine.OpExtendedCard}
	subscribeVerbs = verbs{ // GET in the proto files, POST in the documents
		http.MethodGet: engine.OpSubscribe, http.MethodPost: engine.OpSubscribe,
	}
)

// Match finds the target of a path below an agent's base. The path keeps the client's escapes.
// Match returns nil for a path that does not belong to this binding.
func Match(path string) *Target {
	// A client may join its base and the path with two slashes, or end the path with one.
	segments := strings.Split(strings.TrimSuffix(strings.TrimLeft(path, "/"), "/"), "/")
	for _, v := range httpjson.Versions {
		if t := match(v, segments); t != nil {
			return t
		}
	}
	return nil
}

// match finds the target of a path if it belongs to the version.
func match(v *httpjson.Version, segments []string) *Target {
	switch {
	case v.Prefix != "" && segments[0] == v.Prefix && len(segments) > 1:
		segments = segments[1:]
		if segments[0] == v.Prefix { // the base already contains the prefix
			segments = segments[1:]
		}
		return find(v, segments)
	case v.Prefix != "":
	case v.Begins(segments[0]):
		return find(v, segments)
	case len(segments) > 1 && v.Begins(segments[1]) && !noTenant.MatchString(segments[0]):
		t := find(v, segments[1:])
		t.tenant = unescape(segments[0])
		return t
	}
	return nil
}

// noTenant matches the first segment of other paths: the catalog, well-known names, JSON-RPC in one
// version.
var noTenant = regexp.MustCompile(`^(agents|\.well-known|v\d+(\.\d+)?)$`)

// find looks up a path of a version.
func find(v *httpjson.Version, segments []string) *Target {
	t := &Target{version: v}
	first := ""
	if len(segments) > 0 {
		first = segments[0]
	}
	switch {
	case first == "tasks":
		t.tasks(segments[1:])
	case len(segments) != 1:
	case first == "message:send":
		t.verbs = sendVerbs
	case first == "message:stream":
		t.verbs = streamVerbs
	case first == v.Card:
		t.verbs = cardVerbs
	}
	return t
}

// tasks looks up a path below tasks. An action follows the last colon; an escaped colon belongs to
// the id.
func (t *Target) tasks(segments []string) {
	if len(segments) == 0 {
		t.verbs = tasksVerbs
		return
	}
	id := segments[0]
	switch {
	case len(segments) == 1:
		t.verbs = taskVerbs
		if colon := strings.LastIndexByte(id, ':'); colon >= 0 {
			switch id[colon:] {
			case ":cancel":
				id, t.verbs = id[:colon], cancelVerbs
			case ":subscribe":
				id, t.verbs = id[:colon], subscribeVerbs
			}
		}
	case segments[1] != "pushNotificationConfigs":
	case len(segments) == 2:
		t.verbs, t.Configs = configsVerbs, true
	case len(segments) == 3 && segments[2] != "":
		t.verbs, t.Config = configVerbs, unescape(segments[2])
	}
	if t.Task = unescape(id); t.Task == "" {
		t.verbs = nil
	}
}

// unescape removes the escapes of a segment. net/http has already validated them.
func unescape(segment string) string {
	plain, _ := url.PathUnescape(segment)
	return plain
}

// allow returns the value of the Allow header.
func (v verbs) allow() string {
	all := []string{http.MethodOptions}
	for verb, op := range v {
		all = append(all, verb)
		if verb == http.MethodGet && !op.Streams() {
			all = append(all, http.MethodHead)
		}
	}
	slices.Sort(all[1:])
	return strings.Join(all, ", ")
}

// operation returns the operation of a verb. HEAD is a GET without a body. It does not apply to
// streams, which are nothing but a body.
func (v verbs) operation(verb string) (engine.Op, bool) {
	if verb == http.MethodHead {
		op, ok := v[http.MethodGet]
		return op, ok && !op.Streams()
	}
	op, ok := v[verb]
	return op, ok
}
