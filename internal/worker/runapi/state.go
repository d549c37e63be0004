package runapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// state answers with a stored value.
func (a *API) state(x *exchange) error {
	if err := x.parameters(); err != nil {
		return err
	}
	of, err := x.scope()
	if err != nil {
		return err
	}
	s, err := x.Run.Memory.State(x.ctx, of)
	if err != nil {
		return err
	}
	if s.Value == nil {
		return web.Refuse(http.StatusNotFound, web.ReasonNotFound, "", "nothing is stored for the "+of.String())
	}
	x.tag(s.Version)
	return a.ok(x, wire.StateDocument{Data: jsontext.Value(s.Value), Version: s.Version})
}

// tag sets the entity tag of a version.
func (x *exchange) tag(version int64) {
	x.w.Header().Set("ETag", `"`+strconv.FormatInt(version, 10)+`"`)
}

// setState stores the value in the body.
func (a *API) setState(x *exchange) error {
	if err := x.parameters(); err != nil {
		return err
	}
	if !web.IsJSON(x.r.Header.Get("Content-Type")) {
		return web.Refuse(http.StatusUnsupportedMediaType, web.ReasonInvalid, "Content-Type", "must be application/json")
	}
	limits, most := a.o.Limits, x.Agent().MaxState
	if most > 0 {
		limits.Size = min(limits.Size, 2*most) // with white space, which is not stored
	}
	raw, fault := limits.Read(x.w, x.r, x.account)
	if fault != nil {
		return fault
	}
	var value jsontext.Value
	if bad := wire.Unmarshal(raw, &value); bad != nil {
		return malformed(bad)
	}
	if err := value.Compact(); err != nil {
		return web.Invalid("", "the body is not one JSON value")
	}
	if most > 0 && int64(len(value)) > most {
		return web.Refuse(http.StatusRequestEntityTooLarge, web.ReasonTooLarge, "", fmt.Sprintf("the state has %d bytes; the limit is %d (limits.max_state)", len(value), most))
	}
	version, err := x.store(value)
	if err != nil {
		return err
	}
	x.tag(version)
	return a.ok(x, struct {
		Version int64 `json:"version"`
	}{version})
}

// removeState removes a stored value.
func (a *API) removeState(x *exchange) error {
	if err := x.parameters(); err != nil {
		return err
	}
	if _, err := x.store(nil); err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}

// store writes a state, if its version is the one that the request names.
func (x *exchange) store(value jsontext.Value) (int64, error) {
	of, err := x.scope()
	if err != nil {
		return 0, err
	}
	replaces, field, err := x.replaces()
	if err != nil {
		return 0, err
	}
	version, err := x.Run.Memory.SetState(x.ctx, of, []byte(value), replaces)
	if errors.Is(err, executor.ErrStateChanged) {
		return 0, web.Refuse(http.StatusPreconditionFailed, reasonStateChanged, field, "the state of the "+of.String()+" has another version; read it again")
	}
	return version, err
}

// replaces returns the version that a write replaces, and the header that says so.
func (x *exchange) replaces() (version int64, field string, err error) {
	match, none := x.r.Header.Values("If-Match"), x.r.Header.Values("If-None-Match")
	switch {
	case len(match) > 0 && len(none) > 0:
		return 0, "", web.Invalid("If-None-Match", "cannot be combined with If-Match")
	case len(match) > 0:
		text := strings.TrimSuffix(strings.TrimPrefix(match[0], `"`), `"`)
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || len(match) > 1 || match[0] != `"`+text+`"` {
			return 0, "", web.Invalid("If-Match", `must be one version in quotes, as in ETag: "3"`)
		}
		return n, "If-Match", nil
	case len(none) > 0:
		if len(none) > 1 || none[0] != "*" {
			return 0, "", web.Invalid("If-None-Match", "must be *")
		}
		return 0, "If-None-Match", nil
	}
	return executor.AnyVersion, "", nil
}
