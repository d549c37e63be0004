package engine

import (
	"fmt"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// negotiate compares the media types of a message with those that the agent reads,
// and those that it writes with those that the client reads. A request names no skill,
// so whatever one of them can do, the agent can.
func (a *Agent) negotiate(r *SendRequest) error {
	if !r.Negotiate {
		return nil
	}
	if n := len(r.OutputModes); n > maxOutputModes {
		return task.InvalidField("configuration.acceptedOutputModes", "must not be more than %d", maxOutputModes)
	}
	known := ""
	for i := range r.Message.Parts {
		media := mediaType(&r.Message.Parts[i])
		if media == known {
			continue // as the part before it
		}
		known = media
		if media != "" && !anyMatch(a.InputModes, media) {
			return contentType(fmt.Sprintf("message.parts[%d]", i), media, "reads", a.InputModes)
		}
	}
	for _, wanted := range r.OutputModes {
		if anyMatch(a.OutputModes, wanted) {
			return nil
		}
	}
	if len(r.OutputModes) > 0 {
		return contentType("configuration.acceptedOutputModes", strings.Join(r.OutputModes, ", "), "writes", a.OutputModes)
	}
	return nil
}

func contentType(field, have, verb string, modes []string) error {
	return &task.Error{
		Kind: task.ContentType, Field: field,
		Msg: fmt.Sprintf("%s: %.200q is not what the agent %s: %s", field, have, verb, strings.Join(modes, ", ")),
	}
}

// mediaType is what a part says it is, or what it must be. A file that does not say
// may be anything.
func mediaType(p *task.Part) string {
	switch {
	case p.MediaType != "":
		return p.MediaType
	case p.Kind == task.PartText:
		return "text/plain"
	case p.Kind == task.PartData:
		return "application/json"
	}
	return ""
}

// maxOutputModes bounds what a client can have compared.
const maxOutputModes = 100

// anyMatch reports whether one of the modes and a media type can mean the same. Both
// may be patterns.
func anyMatch(modes []string, media string) bool {
	media = plain(media)
	for _, m := range modes {
		if match(plain(m), media) {
			return true
		}
	}
	return len(modes) == 0
}

// match also takes the modes of the first documents, such as text.
func match(a, b string) bool {
	aType, aSub, _ := strings.Cut(a, "/")
	bType, bSub, _ := strings.Cut(b, "/")
	if aType == "*" || bType == "*" {
		return true
	}
	return aType == bType && (aSub == bSub || aSub == "*" || bSub == "*" || aSub == "" || bSub == "")
}

// plain is a media type without its parameters.
func plain(media string) string {
	media, _, _ = strings.Cut(media, ";")
	return strings.ToLower(strings.TrimSpace(media))
}
