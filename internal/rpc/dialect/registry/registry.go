// Package registry knows every version served, and decides which of them a request
// on the common endpoint speaks.
package registry

import (
	"errors"
	"regexp"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v01"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v10"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// codecs are those of JSON-RPC, in the order of their dialect.ID.
var codecs = [...]dialect.Codec{
	dialect.V01: v01.Codec{},
	dialect.V03: v03.Codec{},
	dialect.V10: v10.Codec{},
}

// All returns a codec of every version, that of JSON-RPC, oldest first.
func All() []dialect.Codec { return codecs[:] }

// ByVersion finds the codec of a version, such as a task's origin. It is nil for a
// version that is not served.
func ByVersion(version string) dialect.Codec {
	for _, c := range codecs {
		if c.Version() == version {
			return c
		}
	}
	return nil
}

// ErrMethod says that no version served has the method.
var ErrMethod = errors.New("method not found")

// Choice is the codec of a request.
type Choice struct {
	Codec dialect.Codec
	// Ambiguous is set when the request reads the same in several versions and only
	// the shape of the answer differs. The version that the task was created in then
	// decides, by ByVersion; Codec stands for a task that is not found.
	Ambiguous bool
}

// Pick decides by the name of the method, the A2A-Version header ("" when absent)
// and the version that the path pins ("" for the common endpoint). The path is
// stronger than the header. The error is ErrMethod, or of kind task.Version when the
// header names a version that does not exist; then Choice is whose words it takes.
//
// A header that names another version than the method belongs to is passed over, for
// the name of the method leaves no doubt. strict refuses it, and reads a missing one
// as 0.3, as A2A 1.0 has it.
func Pick(method, header, pin string, strict bool) (Choice, error) {
	var candidates []dialect.Codec
	for _, c := range codecs {
		if pin != "" && pin != c.Version() {
			continue
		}
		if _, ok := c.Operation(method); ok {
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
		if c.Version() == version {
			return Choice{Codec: c}, nil
		}
	}
	switch {
	case !strict, version == "" && (pin != "" || newest.ID() < dialect.V10):
		return Choice{Codec: newest, Ambiguous: len(candidates) > 1}, nil
	case version == "":
		return Choice{Codec: newest}, task.Errorf(task.Version, "without A2A-Version it is 0.3, which does not have this method")
	}
	return Choice{Codec: newest}, task.Errorf(task.Version, "A2A-Version %s does not have this method", version)
}

// Admit checks an A2A-Version against the version of what the request is sent to, a path of
// HTTP+JSON or a service of gRPC, in the same way: that leaves no doubt, and strict does not let
// it speak alone.
func Admit(c dialect.Codec, header, place string, strict bool) error {
	version, err := parseVersion(header)
	switch {
	case err != nil:
		return err
	case !strict, version == c.Version(), version == "" && c.Version() == v03.Version:
		return nil
	case version == "":
		return task.Errorf(task.Version, "without A2A-Version it is 0.3, which does not have this %s", place)
	}
	return task.Errorf(task.Version, "A2A-Version %s does not have this %s", version, place)
}

var published = regexp.MustCompile(`^(0\.1|0\.2|0\.3|1\.0)(\.[0-9]{1,3})?$`)

// parseVersion maps a header to the version of the codec that speaks it: 0.2 is 0.3
// on the wire, and a patch number changes nothing.
func parseVersion(header string) (string, error) {
	header = strings.TrimSpace(header)
	if header == "" {
		return "", nil
	}
	match := published.FindStringSubmatch(header)
	if match == nil {
		return "", task.Errorf(task.Version, "A2A-Version %.32q is not among 0.1, 0.2, 0.3 and 1.0", header)
	}
	if match[1] == "0.2" {
		return v03.Version, nil
	}
	return match[1], nil
}
