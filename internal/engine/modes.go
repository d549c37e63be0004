package engine

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// negotiate returns a task.ContentType error if the agent cannot read the message or cannot write
// what the client accepts. A request names no skill, so the modes of all skills count.
func (a *Agent) negotiate(r *SendRequest) error {
	if n := len(r.OutputModes); n > maxOutputModes {
		return task.InvalidField("configuration.acceptedOutputModes", "must not have more than %d modes", maxOutputModes)
	}
	known := ""
	for i := range r.Message.Parts {
		media := mediaType(&r.Message.Parts[i])
		if media == known {
			continue // same as the previous part
		}
		known = media
		if media != "" && !anyMatch(a.InputModes, media) {
			return contentType(fmt.Sprintf("%s[%d]", cmp.Or(r.PartsMember, "message.parts"), i), media, "reads", "input", a.InputModes)
		}
	}
	for _, wanted := range r.OutputModes {
		if anyMatch(a.OutputModes, wanted) {
			return nil
		}
	}
	if len(r.OutputModes) > 0 {
		return contentType("configuration.acceptedOutputModes", strings.Join(r.OutputModes, ", "), "writes", "output", a.OutputModes)
	}
	return nil
}

func contentType(field, have, verb, direction string, modes []string) error {
	return &task.Error{
		Kind: task.ContentType, Field: field,
		Msg: fmt.Sprintf("%s: the agent %s %s, not %.200q; an operator can allow it with agents[].card.default_%s_modes",
			field, verb, strings.Join(modes, ", "), have, direction),
	}
}

// mediaType returns the declared media type of a part, or the one that its kind implies. It returns
// "" for a file without a declared type, which matches any mode.
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

// maxOutputModes bounds the comparisons that one request can cause.
const maxOutputModes = 100

// anyMatch reports whether one of the modes matches a media type. Both may be patterns. An empty
// list matches everything.
func anyMatch(modes []string, media string) bool {
	media = plain(media)
	for _, m := range modes {
		if match(plain(m), media) {
			return true
		}
	}
	return len(modes) == 0
}

// match also accepts a mode without a subtype, such as text, from early drafts of the protocol.
func match(a, b string) bool {
	aType, aSub, _ := strings.Cut(a, "/")
	bType, bSub, _ := strings.Cut(b, "/")
	if aType == "*" || bType == "*" {
		return true
	}
	return aType == bType && (aSub == bSub || aSub == "*" || bSub == "*" || aSub == "" || bSub == "")
}

// plain returns a media type in lower case without its parameters.
func plain(media string) string {
	media, _, _ = strings.Cut(media, ";")
	return strings.ToLower(strings.TrimSpace(media))
}
