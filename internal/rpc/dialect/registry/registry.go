// Package registry knows every served version, and decides which of them a request on the common
// endpoint speaks.
package registry

import (
	"errors"
	"regexp"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/binary"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v01"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v10"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// codecs are the codecs of JSON-RPC, in the order of their dialect.ID.
var codecs = [...]dialect.Codec{
	dialect.V01: v01.Codec{},
	dialect.V03: v03.Codec{},
	dialect.V10: v10.Codec{},
}

// All returns the JSON-RPC codec of every version, oldest first.
func All() []dialect.Codec { return codecs[:] }

// Versions returns the served versions, oldest first.
func Versions() []string {
	var all []string
	for _, c := range codecs {
		all = append(all, c.Traits().Version)
	}
	return all
}

// ByVersion returns the codec of a version, such as a task's origin. It returns nil for a version
// that is not served.
func ByVersion(version string) dialect.Codec {
	for _, c := range codecs {
		if c.Traits().Version == version {
			return c
		}
	}
	return nil
}

// Union returns a codec that answers as c does and adds the members of another version. It returns
// nil if there is no such codec.
func Union(c dialect.Codec, version string) dialect.Codec {
	if c.Traits().ID == dialect.V03 && version == v01.Version {
		return v03.Codec{Union: true}
	}
	return nil
}

// Fallback returns the codec for answers to requests with an unknown version.
func Fallback() dialect.Codec { return codecs[dialect.V03] }

// Services returns the versions with a gRPC service, the newest first. depth bounds the nesting of
// metadata and data in requests.
func Services(depth int) []*binary.Codec {
	return []*binary.Codec{binary.New10(depth), binary.New03(depth)}
}

// ErrMethod says that no served version has the method.
var ErrMethod = errors.New("method not found")

// Choice is the codec of a request.
type Choice struct {
	Codec dialect.Codec
	// Ambiguous is set when the request reads the same in several versions and only the shape of
	// the answer differs. The version in which the task was created then decides, by ByVersion.
	// Codec is for a task that is not found.
	Ambiguous bool
}

// Pick chooses the codec of a request. It uses the name of the method, the A2A-Version header (""
// if absent) and the version that the path pins ("" for the common endpoint). The path overrides
// the header. The error is ErrMethod, or of kind task.Version when the header names a version that
// does not exist. In the latter case Choice is the codec for the error.
//
// Pick ignores a header that names a version without the method, because the method determines the
// version. strict refuses such a header, and reads a missing one as 0.3, as A2A 1.0 requires.
func Pick(method, header, pin string, strict bool) (Choice, error) {
	var candidates []dialect.Codec
	for _, c := range codecs {
		if pin != "" && pin != c.Traits().Version {
			continue
		}
		if _, ok := c.Traits().Operations[method]; ok {
			candidates = append(candidates, c)
		}
	}
	if len(candidates) == 0 {
		return Choice{}, ErrMethod
	}
	newest := candidates[len(candidates)-1]
	version, err := parseVersion(header)
	if err != nil {
		return Choice{Codec: newest}, err
	}
	for _, c := range candidates {
		if c.Traits().Version == version {
			return Choice{Codec: c}, nil
		}
	}
	switch {
	case !strict, version == "" && (pin != "" || newest.Traits().ID < dialect.V10):
		return Choice{Codec: newest, Ambiguous: len(candidates) > 1}, nil
	case version == "":
		return Choice{Codec: newest}, task.Errorf(task.Version, "without A2A-Version the request is in 0.3, which does not have this method; send A2A-Version: %s", newest.Traits().Version)
	}
	return Choice{Codec: newest}, task.Errorf(task.Version, "A2A-Version %s does not have this method; %s does", version, newest.Traits().Version)
}

// Admit checks an A2A-Version against the version of the path or gRPC service that the request was
// sent to. As in Pick, that version decides, and only strict refuses a header that disagrees.
func Admit(c dialect.Codec, header, place string, strict bool) error {
	version, err := parseVersion(header)
	switch {
	case err != nil:
		return err
	case !strict, version == c.Traits().Version, version == "" && c.Traits().Version == v03.Version:
		return nil
	case version == "":
		return task.Errorf(task.Version, "without A2A-Version the request is in 0.3, which does not have this %s; send A2A-Version: %s", place, c.Traits().Version)
	}
	return task.Errorf(task.Version, "A2A-Version %s does not have this %s; %s does", version, place, c.Traits().Version)
}

var published = regexp.MustCompile(`^(0\.1|0\.2|0\.3|1\.0)(\.[0-9]{1,3})?$`)

// parseVersion maps a header to the version of the codec that speaks it: 0.2 is 0.3 on the wire,
// and a patch number changes nothing.
func parseVersion(header string) (string, error) {
	header = strings.TrimSpace(header)
	if header == "" {
		return "", nil
	}
	match := published.FindStringSubmatch(header)
	if match == nil {
		return "", task.Errorf(task.Version, "A2A-Version %.32q is not supported; use 0.1, 0.2, 0.3 or 1.0", header)
	}
	if match[1] == "0.2" {
		return v03.Version, nil
	}
	return match[1], nil
}
