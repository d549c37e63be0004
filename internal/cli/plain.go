package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// plain returns the text of an error with words for people instead of those of Go's packages.
func plain(err error) string {
	text := err.Error()
	put := func(cause error, words string) { text = strings.ReplaceAll(text, cause.Error(), words) }
	if e, is := errors.AsType[*url.Error](err); is && e.Op == "parse" {
		put(e, fmt.Sprintf("%q is not a URL", e.URL))
	} else if is {
		put(e, origin(e.URL)+": "+e.Err.Error())
	}
	if e, is := errors.AsType[*net.DNSError](err); is {
		put(e, fmt.Sprintf("the name %q is not known", e.Name))
	}
	if e, is := errors.AsType[*net.OpError](err); is {
		if number, is := errors.AsType[syscall.Errno](e.Err); is {
			put(e, number.Error())
		} else {
			text = strings.ReplaceAll(text, strings.TrimSuffix(e.Error(), e.Err.Error()), "")
		}
	}
	if e, is := errors.AsType[*json.SyntaxError](err); is {
		put(e, "it is not JSON")
	}
	if e, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		put(e, fmt.Sprintf("%s has the wrong type %s", e.Field, e.Value))
	}
	for cause, words := range map[error]string{
		context.DeadlineExceeded: "no answer in time", os.ErrDeadlineExceeded: "no answer in time", context.Canceled: "interrupted",
		io.ErrUnexpectedEOF: "it ends too early",
	} {
		if errors.Is(err, cause) {
			put(cause, words)
		}
	}
	return strings.ReplaceAll(text, ": "+io.EOF.Error(), ": the connection was closed")
}
