package rawjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is the default bound on nested objects and arrays. Published examples stay below 10. The
// bound limits the stack and the cost of every later reader.
const MaxDepth = 32

// Error says what is wrong with a body, and where.
type Error struct {
	// Syntax is set when the body is not JSON at all: bad grammar, bad UTF-8, more than one value.
	// Otherwise the part read so far is JSON, but the server refuses it.
	Syntax bool
	// Path is the member at fault, such as params.message.parts[0].text; "" is the body itself.
	Path string
	Msg  string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Msg
	}
	return e.Path + ": " + e.Msg
}

// InParams reports whether the fault is within the member params.
func (e *Error) InParams() bool {
	rest, ok := strings.CutPrefix(e.Path, "params")
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Check reports the first fault of a body: a syntax error, invalid UTF-8, objects and arrays nested
// deeper than maxDepth, or a duplicate member name. A NUL character in a string or a name is also a
// fault, since PostgreSQL cannot store it. The error is an *Error. Check neither keeps nor changes
// the body.
func Check(body []byte, maxDepth int) error {
	s := scanners.Get().(*scanner)
	defer s.release()
	s.src = *bytes.NewBuffer(body)
	s.dec.Reset(&s.src)
	return s.check(maxDepth, bytes.Contains(body, nulEscape))
}

// A NUL character is always written as this escape: raw control characters are a syntax error.
var nulEscape = []byte(`\u0000`)

var scanners = sync.Pool{New: func() any { return &scanner{dec: new(jsontext.Decoder)} }}

type scanner struct {
	dec *jsontext.Decoder
	src bytes.Buffer
}

// release returns the scanner to the pool, without the body.
func (s *scanner) release() {
	s.src = bytes.Buffer{}
	s.dec.Reset(&s.src)
	scanners.Put(s)
}

func (s *scanner) check(maxDepth int, mayHaveNUL bool) error {
	for {
		if err := s.step(mayHaveNUL); err != nil {
			return err
		}
		switch depth := s.dec.StackDepth(); {
		case depth > maxDepth:
			return &Error{Path: Path(s.dec, ""), Msg: fmt.Sprintf("objects and arrays are nested more than %d deep", maxDepth)}
		case depth == 0:
			return s.end()
		}
	}
}

// step reads one token. It reads strings and names as raw values, without unescaping or allocating.
func (s *scanner) step(mayHaveNUL bool) error {
	if s.dec.PeekKind() != jsontext.KindString {
		if _, err := s.dec.ReadToken(); err != nil {
			return s.syntax(err)
		}
		return nil
	}
	raw, err := s.dec.ReadValue()
	if err != nil {
		return s.syntax(err)
	}
	if mayHaveNUL && hasNUL(raw) {
		return &Error{Path: Path(s.dec, ""), Msg: "NUL characters (\\u0000) are not accepted"}
	}
	return nil
}

// end checks that the body contains only one value.
func (s *scanner) end() error {
	_, err := s.dec.ReadToken()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return s.syntax(err)
	}
	return &Error{Syntax: true, Msg: "more than one JSON value"}
}

func (s *scanner) syntax(err error) error {
	if errors.Is(err, io.EOF) {
		return &Error{Syntax: true, Msg: "empty body"}
	}
	var at *jsontext.SyntacticError
	if !errors.As(err, &at) {
		return &Error{Syntax: true, Msg: err.Error()}
	}
	path := Path(s.dec, at.JSONPointer)
	if errors.Is(at.Err, jsontext.ErrDuplicateName) {
		return &Error{Path: path, Msg: "the member appears twice"}
	}
	if errors.Is(at.Err, io.ErrUnexpectedEOF) {
		return &Error{Syntax: true, Path: path, Msg: fmt.Sprintf("the body ends too early, at byte %d", at.ByteOffset)}
	}
	return &Error{Syntax: true, Path: path, Msg: fmt.Sprintf("%v at byte %d", at.Err, at.ByteOffset)}
}

// hasNUL finds the escape in a raw string. `\\u0000` is a backslash and ordinary characters, and
// does not count.
func hasNUL(raw []byte) bool {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 || i+1 >= len(raw) {
			return false
		}
		if bytes.HasPrefix(raw[i:], nulEscape) {
			return true
		}
		raw = raw[i+2:]
	}
}
