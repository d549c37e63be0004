package task

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind classifies an error by what the caller can do about it. One table maps it to the code of
// each binding (internal/web/fault).
type Kind uint8

// The kinds of error. Internal is the zero value: an unclassified error.
const (
	Internal Kind = iota
	NotFound
	NotCancelable
	PushUnsupported
	Unsupported
	StreamingUnsupported
	ContentType
	BadAgentReply
	NoExtendedCard
	ExtensionRequired
	Version
	Invalid
	Terminal
	Busy
	Unauthenticated
	Forbidden
	RateLimited
	Unavailable
	TooLarge
	LeaseLost
	kindCount
)

// KindCount is the number of kinds; tables indexed by Kind have this length.
const KindCount = int(kindCount)

var kindNames = [KindCount]string{
	Internal:             "internal error",
	NotFound:             "task not found",
	NotCancelable:        "task cannot be canceled",
	PushUnsupported:      "push notification is not supported",
	Unsupported:          "this operation is not supported",
	StreamingUnsupported: "streaming is not supported",
	ContentType:          "incompatible content types",
	BadAgentReply:        "invalid agent response",
	NoExtendedCard:       "extended card is not configured",
	ExtensionRequired:    "a required extension was not named",
	Version:              "version not supported",
	Invalid:              "invalid parameters",
	Terminal:             "the task has ended",
	Busy:                 "the task is busy",
	Unauthenticated:      "authentication required",
	Forbidden:            "authorization failed",
	RateLimited:          "rate limit exceeded",
	Unavailable:          "temporarily unavailable",
	TooLarge:             "request too large",
	LeaseLost:            "the lease was lost",
}

// Error makes a Kind usable with errors.Is.
func (k Kind) Error() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[Internal]
}

// Error is the only error type that crosses package boundaries. Msg is safe to show to the client;
// Cause is only logged.
type Error struct {
	Kind       Kind
	Msg        string
	Field      string        // the invalid member of the request, such as message.parts[0].text
	RetryAfter time.Duration // with Unavailable and RateLimited
	Challenges []string      // with Unauthenticated and Forbidden: values of WWW-Authenticate
	Cause      error
}

func (e *Error) Error() string {
	msg := e.Msg
	if msg == "" {
		msg = e.Kind.Error()
	}
	if e.Cause != nil {
		return msg + ": " + e.Cause.Error()
	}
	return msg
}

// Unwrap lets errors.Is match both the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// Errorf returns an Error of a kind with a message for the client.
func Errorf(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Msg: fmt.Sprintf(format, args...)}
}

// InvalidField returns an Invalid error that names the invalid member. Its message has the form
// "member: reason".
func InvalidField(field, format string, args ...any) *Error {
	return &Error{Kind: Invalid, Field: field, Msg: field + ": " + fmt.Sprintf(format, args...)}
}

// maxShown bounds the texts that Shown returns, in bytes. The longest id that a client may choose fits.
const maxShown = 1024

// Shown returns a text as answers and log lines about an error show it. Most errors name what is wrong, and clients send ids and names
// of any length. Of a long text the middle is left out: its end often says why.
func Shown(text string) string {
	if len(text) <= maxShown {
		return text
	}
	const end = maxShown / 4
	return strings.ToValidUTF8(text[:maxShown-end-len("…")], "") + "…" + strings.ToValidUTF8(text[len(text)-end:], "")
}

// KindOf returns the kind of any error. An error that is not an Error is Internal.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	var k Kind
	if errors.As(err, &k) {
		return k
	}
	return Internal
}
