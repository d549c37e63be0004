package rest

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/engine"
)

// Target is what a path leads to.
type Target struct {
	version *version
	tenant  string // "" where the path names none
	task    string
	configs bool   // it is about push configurations
	config  string // one of them
	// verbs are the operations, by verb. Nil for a path that has the form of a version and
	// is none of its paths.
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

// Match finds what a path below the base of an agent leads to, as it was escaped by the
// client. It is nil for a path that is none of this binding.
func Match(path string) *Target {
	// A client may join its base and the path with two slashes, or end the path with one.
	segments := strings.Split(strings.TrimSuffix(strings.TrimLeft(path, "/"), "/"), "/")
	if segments[0] == prefix03 && len(segments) > 1 {
		segments = segments[1:]
		if segments[0] == prefix03 { // the base had it already
			segments = segments[1:]
		}
		return find(version03, segments)
	}
	switch {
	case begins10(segments[0]):
		return find(version10, segments)
	case len(segments) > 1 && begins10(segments[1]) && !noTenant.MatchString(segments[0]):
		t := find(version10, segments[1:])
		t.tenant = unescape(segments[0])
		return t
	}
	return nil
}

// noTenant matches what begins other paths: the catalog, well-known names, JSON-RPC in one version.
var noTenant = regexp.MustCompile(`^(agents|\.well-known|v\d+(\.\d+)?)$`)

// prefix03 begins the paths of 0.3.
const prefix03 = "v1"

// begins10 reports whether a segment begins a path of 1.0, which has no prefix.
func begins10(segment string) bool {
	return strings.HasPrefix(segment, "message:") || segment == "tasks" || segment == version10.card
}

// find looks a path up that belongs to a version.
func find(v *version, segments []string) *Target {
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
	case first == v.card:
		t.verbs = cardVerbs
	}
	return t
}

// tasks looks up what is below tasks. An action is behind the last colon; one that was
// escaped is a part of the id.
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
		t.verbs, t.configs = configsVerbs, true
	case len(segments) == 3 && segments[2] != "":
		t.verbs, t.config = configVerbs, unescape(segments[2])
	}
	if t.task = unescape(id); t.task == "" {
		t.verbs = nil
	}
}

// unescape undoes the escapes of a segment, which net/http has found to be sound.
func unescape(segment string) string {
	plain, _ := url.PathUnescape(segment)
	return plain
}

// allow is the header of this name.
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

// operation is what a verb does here. HEAD is GET whose answer has no body, and a
// stream without one is none.
func (v verbs) operation(verb string) (engine.Op, bool) {
	if verb == http.MethodHead {
		op, ok := v[http.MethodGet]
		return op, ok && !op.Streams()
	}
	op, ok := v[verb]
	return op, ok
}
