package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// maxQuote bounds how many bytes of the agent's answer a message repeats.
const maxQuote = 200

// Malformed says where and why an agent's event is invalid. Its text is for the agent's author, and clients may see it.
// It quotes names of members, and only a few characters of input that is not JSON.
type Malformed struct {
	Line    int    // from 1; 0 when the answer is a single document
	Member  string // such as artifact.parts[0]; empty when the whole event is at fault
	Problem string
}

func (m *Malformed) Error() string {
	var b strings.Builder
	if m.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", m.Line)
	}
	if m.Member != "" {
		b.WriteString(quote(m.Member) + ": ")
	}
	b.WriteString(m.Problem)
	return b.String()
}

// Failure fails the run with a message that tells the agent's author what to fix. It is not retryable: another attempt
// would read the same.
func (m *Malformed) Failure() error {
	return &executor.Failure{Msg: "the agent's answer is not understood: " + m.Error()}
}

// Unread turns an error of a stream into that of a run: a line that cannot be read is malformed.
func Unread(err error) error {
	if bad, ok := errors.AsType[*web.LineError](err); ok {
		return (&Malformed{Line: bad.Line, Problem: bad.Problem}).Failure()
	}
	return err
}

// quote shortens s to maxQuote bytes.
func quote(s string) string {
	if len(s) <= maxQuote {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuote], "") + "…"
}

func malformed(member, format string, args ...any) *Malformed {
	return &Malformed{Member: member, Problem: fmt.Sprintf(format, args...)}
}

// inside puts a member's name before the one that m already has.
func (m *Malformed) inside(member string) *Malformed {
	switch {
	case m.Member == "":
		m.Member = member
	case strings.HasPrefix(m.Member, "["):
		m.Member = member + m.Member
	default:
		m.Member = member + "." + m.Member
	}
	return m
}

// explain turns an error of the JSON package into one for the agent's author.
func explain(err error) *Malformed {
	if m, ok := errors.AsType[*Malformed](err); ok {
		if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
			return m.inside(memberOf(semantic.JSONPointer))
		}
		return m
	}
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return malformed(memberOf(syntax.JSONPointer), "is given twice")
		}
		return malformed(memberOf(syntax.JSONPointer), "not JSON: %v, at byte %d", syntax.Err, syntax.ByteOffset+1)
	}
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return malformed("", "%v", err)
	}
	member := memberOf(semantic.JSONPointer)
	switch {
	case errors.Is(err, json.ErrUnknownName):
		return malformed(member, "is not a known member")
	case semantic.Err == nil && semantic.GoType != nil:
		return malformed(member, "must be %s, not %s", wanted(semantic.GoType), found(semantic.JSONKind))
	case semantic.GoType != nil && semantic.GoType.Kind() == reflect.Int:
		return malformed(member, "must be a whole number")
	default:
		return malformed(member, "%v", semantic.Err)
	}
}

// memberOf writes a JSON pointer the way programmers do: artifact.parts[0].text.
func memberOf(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		switch _, err := strconv.ParseUint(token, 10, 32); {
		case err == nil:
			b.WriteString("[" + token + "]")
		case b.Len() > 0:
			b.WriteString("." + token)
		default:
			b.WriteString(token)
		}
	}
	return b.String()
}

func wanted(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64, reflect.Int, reflect.Int64:
		return "a number"
	case reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

func found(k jsontext.Kind) string {
	switch k {
	case jsontext.KindString:
		return "a string"
	case jsontext.KindNumber:
		return "a number"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "true or false"
	case jsontext.KindBeginObject:
		return "an object"
	case jsontext.KindBeginArray:
		return "an array"
	default:
		return "null"
	}
}

// tooDeep refuses nesting beyond MaxDepth before the decoder meets it.
func tooDeep(raw []byte) *Malformed {
	if task.Deeper(raw, MaxDepth) {
		return malformed("", "nests deeper than %d levels", MaxDepth)
	}
	return nil
}
