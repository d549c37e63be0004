package rawjson

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Reader reads the members of a JSON value that Check has accepted. The first fault sticks:
// after it the loops end and the getters return zero values. So a codec reads straight down and
// asks Err once.
//
//	for r.Object(); r.Next(); {
//		switch string(r.Name()) {
//		case "id":
//			id = r.String()
//		default:
//			r.Skip()
//		}
//	}
//
// A member whose value is null counts as absent: Next skips it.
type Reader struct {
	dec     *jsontext.Decoder
	src     bytes.Buffer
	params  []byte
	objects []object // the open ones, from the outside in
	name    []byte   // of the current member, quoted as it was sent
	scratch []byte
	err     *task.Error
}

// object is an object that is being read.
type object struct {
	start   int64 // in params
	checked bool  // RefuseTwins has read its names
}

var readers = sync.Pool{New: func() any { return &Reader{dec: new(jsontext.Decoder)} }}

// duplicates is set because Check has already refused them.
var duplicates = jsontext.AllowDuplicateNames(true)

// NewReader begins to read the params of a request. Empty params read as {}. Close the reader after
// use; the returned values stay valid.
func NewReader(params []byte) *Reader {
	if len(params) == 0 {
		params = []byte("{}")
	}
	r := readers.Get().(*Reader)
	r.params, r.src = params, *bytes.NewBuffer(params)
	r.dec.Reset(&r.src, duplicates)
	return r
}

// Close returns the reader to the pool.
func (r *Reader) Close() {
	r.params, r.src = nil, bytes.Buffer{}
	r.dec.Reset(&r.src)
	r.objects, r.err = r.objects[:0], nil
	// Do not keep the largest names and files of the past in the pool.
	if cap(r.name)+cap(r.scratch) > 64<<10 {
		r.name, r.scratch = nil, nil
	}
	readers.Put(r)
}

// Err returns the first fault: an error of kind Invalid that names the member.
func (r *Reader) Err() error {
	if r.err == nil {
		return nil
	}
	return r.err
}

// Fail records a fault. After a getter it concerns the value just read; after a loop over an
// object, that object.
func (r *Reader) Fail(format string, args ...any) { r.FailMember("", format, args...) }

// FailMember records a fault of a member of the object whose loop has just ended.
func (r *Reader) FailMember(name, format string, args ...any) {
	if r.err != nil {
		return
	}
	path := Path(r.dec, "")
	if name != "" {
		path = Join(path, name)
	}
	if path == "" {
		path = "params"
	}
	r.err = task.InvalidField(path, format, args...)
}

// Require records that a member of the object whose loop has just ended is missing.
func (r *Reader) Require(present bool, name string) {
	if !present {
		r.FailMember(name, "is required")
	}
}

// Path returns the path of the object whose loop has just ended.
func (r *Reader) Path() string { return Path(r.dec, "") }

// Object opens the next value, which must be an object.
func (r *Reader) Object() {
	r.open(jsontext.KindBeginObject, "must be an object")
	if r.err == nil {
		r.objects = append(r.objects, object{start: r.dec.InputOffset() - 1})
	}
}

// MaxParts is the largest number of parts of a message that any server accepts. Codecs read one more,
// so that the limits of operations refuse the message, and skip the rest: a body of empty parts
// would become many times its size.
const MaxParts = 100_000

// Array opens the next value, which must be an array.
func (r *Reader) Array() { r.open(jsontext.KindBeginArray, "must be an array") }

func (r *Reader) open(kind jsontext.Kind, complaint string) {
	if r.expect(kind, complaint) {
		r.token()
	}
}

// Next moves to the next member of the current object and reports whether there is one.
func (r *Reader) Next() bool {
	for r.member() {
		if r.dec.PeekKind() != jsontext.KindNull {
			return true
		}
		r.token()
	}
	return false
}

// NextOr is Next for an object in which one member may have the value null.
func (r *Reader) NextOr(nullable string) bool {
	for r.member() {
		if r.dec.PeekKind() != jsontext.KindNull || string(r.Name()) == nullable {
			return true
		}
		r.token()
	}
	return false
}

// member is Next without skipping nulls.
func (r *Reader) member() bool {
	if r.err != nil {
		return false
	}
	if r.dec.PeekKind() == jsontext.KindEndObject {
		r.token()
		r.objects = r.objects[:len(r.objects)-1]
		return false
	}
	r.name = append(r.name[:0], r.value()...)
	return r.err == nil
}

// Name returns the name of the current member. It is valid until the next member.
func (r *Reader) Name() []byte {
	if bytes.IndexByte(r.name, '\\') < 0 {
		return r.name[1 : len(r.name)-1]
	}
	return r.unquote(nil, r.name)
}

// RefuseTwins records a fault if two members of the current object have the same canonical name.
// It reads the names of an object only once.
func (r *Reader) RefuseTwins(canonical func(name []byte) []byte) {
	if r.err != nil || r.objects[len(r.objects)-1].checked {
		return
	}
	at := &r.objects[len(r.objects)-1]
	at.checked = true
	names := NewReader(r.params[at.start:])
	defer names.Close()
	seen := map[string]bool{}
	for names.Object(); names.member(); names.Skip() {
		name := string(canonical(names.Name()))
		if !seen[name] {
			seen[name] = true
			continue
		}
		path := ""
		if object := r.dec.StackPointer().Parent(); object != "" {
			path = Path(r.dec, object)
		}
		r.err = task.InvalidField(Join(path, name), "is given in two spellings")
		return
	}
}

// Null reads a null, and reports whether the next value was one.
func (r *Reader) Null() bool {
	if r.err != nil || r.dec.PeekKind() != jsontext.KindNull {
		return false
	}
	r.token()
	return true
}

// Item moves to the next element of the current array and reports whether there is one.
func (r *Reader) Item() bool {
	if r.err != nil {
		return false
	}
	kind := r.dec.PeekKind()
	if kind == jsontext.KindEndArray || kind == jsontext.KindInvalid {
		r.token()
		return false
	}
	return true
}

// Skip skips a value.
func (r *Reader) Skip() {
	if r.err == nil {
		r.check(r.dec.SkipValue())
	}
}

// String reads a string.
func (r *Reader) String() string {
	if !r.expect(jsontext.KindString, "must be a string") {
		return ""
	}
	return r.token().String()
}

// IsString reports whether the next value is a string.
func (r *Reader) IsString() bool { return r.err == nil && r.dec.PeekKind() == jsontext.KindString }

// IsNumber reports whether the next value is a number.
func (r *Reader) IsNumber() bool { return r.err == nil && r.dec.PeekKind() == jsontext.KindNumber }

// Time reads an RFC 3339 timestamp. Without an offset it is UTC.
func (r *Reader) Time() time.Time {
	text := r.String()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse("2006-01-02T15:04:05", text)
	}
	if err != nil {
		r.Fail("must be a timestamp such as 2026-01-31T09:00:00Z")
		return time.Time{}
	}
	return at
}

// Strings reads an array of strings.
func (r *Reader) Strings() []string {
	var all []string
	for r.Array(); r.Item(); {
		all = append(all, r.String())
	}
	return all
}

// Bool reads true or false.
func (r *Reader) Bool() bool {
	if r.err != nil {
		return false
	}
	if kind := r.dec.PeekKind(); kind == jsontext.KindTrue || kind == jsontext.KindFalse {
		t := r.token()
		return r.err == nil && t.Bool() // the word may be truncated
	}
	r.mismatch("must be true or false")
	return false
}

// Count reads an integer that is not negative. 2.0 also counts as one, as in JSON Schema. Numbers
// that do not fit become the largest number.
func (r *Reader) Count() int {
	const complaint = "must be an integer that is not negative"
	if !r.expect(jsontext.KindNumber, complaint) {
		return 0
	}
	raw := string(r.value())
	if n, err := strconv.Atoi(raw); err == nil && n >= 0 {
		return n
	}
	f, _ := strconv.ParseFloat(raw, 64) // out of range gives infinity, which the comparison handles
	if f < 0 || f != math.Trunc(f) {
		r.Fail(complaint)
		return 0
	}
	return int(min(f, math.MaxInt32))
}

// Bytes reads a base64 string (task.DecodeBase64).
func (r *Reader) Bytes() []byte {
	if !r.expect(jsontext.KindString, "must be a base64 string") {
		return nil
	}
	raw := r.value()
	if len(raw) < 2 {
		return nil
	}
	r.scratch = r.unquote(r.scratch[:0], raw)
	out, ok := task.DecodeBase64(r.scratch)
	if !ok {
		r.Fail("is not base64")
	}
	return out
}

// Raw reads any value and returns it compacted, otherwise unchanged.
func (r *Reader) Raw() json.RawMessage {
	if r.err != nil {
		return nil
	}
	return Compact(r.value())
}

// RawObject reads an object in the same way as Raw.
func (r *Reader) RawObject() json.RawMessage {
	if !r.expect(jsontext.KindBeginObject, "must be an object") {
		return nil
	}
	return r.Raw()
}

func (r *Reader) expect(kind jsontext.Kind, complaint string) bool {
	if r.err != nil {
		return false
	}
	if r.dec.PeekKind() != kind {
		r.mismatch(complaint)
		return false
	}
	return true
}

// mismatch skips a value of the wrong kind, so that the fault has the path of that value.
func (r *Reader) mismatch(complaint string) {
	r.Skip()
	r.Fail("%s", complaint)
}

func (r *Reader) token() jsontext.Token {
	t, err := r.dec.ReadToken()
	r.check(err)
	return t
}

func (r *Reader) value() jsontext.Value {
	v, err := r.dec.ReadValue()
	r.check(err)
	return v
}

func (r *Reader) check(err error) {
	if err != nil {
		r.Fail("is not valid JSON")
	}
}

// unquote appends the content of a raw JSON string.
func (r *Reader) unquote(dst, raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return append(dst, raw[1:len(raw)-1]...)
	}
	dst, err := jsontext.AppendUnquote(dst, raw)
	r.check(err)
	return dst
}
