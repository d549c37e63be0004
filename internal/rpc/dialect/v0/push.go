package v0

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// PushConfig reads a PushNotificationConfig. name is the canonical name of the member under way; the id is passed over
// where the version has none.
func PushConfig(r *wire.Reader, name func(*wire.Reader) []byte, withID bool) *engine.PushSetting {
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

// AppendPushConfig appends a PushNotificationConfig. Its secrets are for the receiver alone: they are left out, and not
// masked, so that a client which sends back what it was shown does not set a mask.
func AppendPushConfig(dst []byte, c *task.PushConfig, withID bool) []byte {
	dst = wire.AppendString(append(dst, `{"url":`...), c.URL)
	if withID {
		dst = wire.AppendStringMember(dst, "id", c.ID)
	}
	if len(c.Schemes) > 0 {
		dst = append(dst, `,"authentication":{"schemes":`...)
		dst = append(wire.AppendArray(dst, c.Schemes, func(dst []byte, s *string) []byte { return wire.AppendString(dst, *s) }), '}')
	}
	return append(dst, '}')
}
