package v0

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// PushConfig reads a PushNotificationConfig. name returns the canonical name of the current member.
// Without withID the version has no id, and PushConfig skips it.
func PushConfig(r *rawjson.Reader, name func(*rawjson.Reader) []byte, withID bool) *engine.PushSetting {
	s := new(engine.PushSetting)
	for r.Object(); r.Next(); {
		switch member := string(name(r)); {
		case member == "id" && withID:
			s.ID = r.String()
		case member == "url":
			s.URL = r.String()
		case member == "token":
			s.Token = r.String()
		case member == "authentication":
			for r.Object(); r.Next(); {
				switch string(name(r)) {
				case "schemes":
					s.Schemes = r.Strings()
				case "credentials":
					s.Credentials = r.String()
				default:
					r.Skip()
				}
			}
		default:
			r.Skip()
		}
	}
	s.Member = r.Path()
	r.Require(s.URL != "", "url")
	return s
}

// AppendPushConfig appends a PushNotificationConfig. It omits the secrets, which are for the
// receiver alone. It does not mask them, since a client that sends the configuration back would
// then set the mask.
func AppendPushConfig(dst []byte, c *task.PushConfig, withID bool) []byte {
	dst = rawjson.AppendString(append(dst, `{"url":`...), c.URL)
	if withID {
		dst = rawjson.AppendStringMember(dst, "id", c.ID)
	}
	if len(c.Schemes) > 0 {
		dst = append(dst, `,"authentication":{"schemes":`...)
		dst = append(rawjson.AppendArray(dst, c.Schemes, func(dst []byte, s *string) []byte { return rawjson.AppendString(dst, *s) }), '}')
	}
	return append(dst, '}')
}
