// Package binary speaks the versions with a proto file as binary messages, which is what gRPC
// carries. It decides nothing. It converts a request to the ProtoJSON that the version's own codec
// reads, and converts what that codec writes back to messages. So each version has one codec, and
// gRPC shows what the other bindings show.
package binary

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03proto"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v10"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Codec is the vocabulary of a version as binary messages.
type Codec struct {
	dialect.Codec // as ProtoJSON
	traits        dialect.Traits
	depth         int
	service       string
	methods       []Method
	requests      map[engine.Op]protoreflect.MessageType
	replies       map[engine.Op]protoreflect.MessageType
}

var _ dialect.Codec = (*Codec)(nil)

// Method is a method of a version's service.
type Method struct {
	Name string
	Op   engine.Op
}

// New03 makes the codec of 0.3. depth bounds the nesting of metadata and data in requests, as JSON.
func New03(depth int) *Codec {
	c := newCodec(v03proto.Codec{Younger: true}, dialect.V03Binary, pb03.File_a2a_proto, depth)
	c.traits.Card = card.RenderBinary
	return c
}

// New10 makes the codec of 1.0. depth is as for New03.
func New10(depth int) *Codec {
	return newCodec(v10.Codec{}, dialect.V10Binary, pb10.File_a2av1_proto, depth)
}

func newCodec(c dialect.Codec, id dialect.ID, file protoreflect.FileDescriptor, depth int) *Codec {
	service := file.Services().ByName("A2AService")
	b := &Codec{
		Codec: c, traits: *c.Traits(), depth: cmp.Or(depth, rawjson.MaxDepth), service: string(service.FullName()),
		requests: map[engine.Op]protoreflect.MessageType{}, replies: map[engine.Op]protoreflect.MessageType{},
	}
	b.traits.ID = id
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		op, ok := b.traits.Operations[string(m.Name())]
		if !ok {
			continue
		}
		b.methods = append(b.methods, Method{string(m.Name()), op})
		b.requests[op], b.replies[op] = messageType(m.Input()), messageType(m.Output())
	}
	return b
}

func messageType(d protoreflect.MessageDescriptor) protoreflect.MessageType {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err) // cannot happen: generated code registers its types
	}
	return t
}

// Traits returns the traits of the version over gRPC.
func (c *Codec) Traits() *dialect.Traits { return &c.traits }

// Service returns the full name of the version's service.
func (c *Codec) Service() string { return c.service }

// Methods returns the served methods of the service.
func (c *Codec) Methods() []Method { return c.methods }

// Decode reads the request message of an operation. Unlike for other codecs, its bytes may be
// arbitrary.
func (c *Codec) Decode(op engine.Op, message []byte) (*dialect.Call, error) {
	params, err := document(message, c.requests[op].New().Interface())
	if err != nil {
		return nil, err
	}
	var bad *rawjson.Error
	if err := rawjson.Check(params, c.depth); errors.As(err, &bad) {
		return nil, task.InvalidField(bad.Path, "%s", bad.Msg)
	} else if err != nil {
		return nil, err
	}
	return c.Codec.Decode(op, params)
}

// Tenant returns the agent that a request names, or "": also if Decode refuses it.
func (c *Codec) Tenant(op engine.Op, message []byte) string {
	m := c.requests[op].New()
	field := m.Descriptor().Fields().ByName("tenant")
	if field != nil && nested(message, m.Descriptor(), 0) <= maxNested && proto.Unmarshal(message, m.Interface()) == nil {
		return m.Get(field).String()
	}
	return ""
}

// document converts a message to ProtoJSON, by way of m.
func document(message []byte, m proto.Message) ([]byte, error) {
	if n := nested(message, m.ProtoReflect().Descriptor(), 0); n > maxNested {
		return nil, &task.Error{Kind: task.TooLarge, Msg: fmt.Sprintf("the message has more than %d parts, values and other messages in it", maxNested)}
	}
	if err := proto.Unmarshal(message, m); err != nil {
		return nil, &task.Error{Kind: task.Invalid, Msg: "the message cannot be parsed", Cause: err}
	}
	clearPageSize(m.ProtoReflect())
	b, err := toJSON(m)
	if err != nil {
		return nil, inconvertible(m, err)
	}
	return b, nil
}

// inconvertible names the member that JSON cannot express: a time out of range, a number that is not finite, or an empty Value.
func inconvertible(m proto.Message, err error) error {
	bad := &task.Error{Kind: task.Invalid, Msg: "the message cannot be converted to JSON", Cause: err}
	_ = protorange.Range(m.ProtoReflect(), func(at protopath.Values) error {
		why := ""
		switch v := at.Index(-1).Value.Interface().(type) {
		case float64:
			if math.IsNaN(v) || math.IsInf(v, 0) {
				why = "is not finite"
			}
		case protoreflect.Message:
			switch m := v.Interface().(type) {
			case *timestamppb.Timestamp:
				if !m.IsValid() {
					why = "is no time from year 1 to 9999"
				}
			case *structpb.Value:
				if m.GetKind() == nil {
					why = "is an empty Value"
				}
			}
		}
		if why == "" {
			return nil
		}
		bad = task.InvalidField(jsonPath(at.Path), "%s", why)
		return protorange.Terminate
	})
	return bad
}

// jsonPath names a member as the JSON of the message has it.
func jsonPath(path protopath.Path) string {
	var b strings.Builder
	name := func(s string) {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s)
	}
	for _, step := range path {
		switch step.Kind() { //nolint:exhaustive // the others name nothing
		case protopath.FieldAccessStep:
			if f := step.FieldDescriptor(); f.ParentFile().Package() != "google.protobuf" { // JSON has no members for what these are made of
				name(f.JSONName())
			}
		case protopath.ListIndexStep:
			fmt.Fprintf(&b, "[%d]", step.ListIndex())
		case protopath.MapIndexStep:
			name(step.MapIndex().String())
		}
	}
	return b.String()
}

// Request converts the params of an operation to the message that a client sends.
func (c *Codec) Request(op engine.Op, params []byte) ([]byte, error) {
	return fromJSON(params, c.requests[op].New().Interface())
}

// Answer converts the message with which a server answers an operation to ProtoJSON. The message may be arbitrary bytes.
func (c *Codec) Answer(op engine.Op, message []byte) ([]byte, error) {
	return document(message, c.replies[op].New().Interface())
}

// clearPageSize clears a page size of 0. Libraries that set every field send it where their user
// chose no size.
func clearPageSize(m protoreflect.Message) {
	if size := m.Descriptor().Fields().ByName("page_size"); size != nil && m.Get(size).Int() == 0 {
		m.Clear(size)
	}
}

// Result renders the answer of OpSend, OpGet or OpCancel.
func (c *Codec) Result(op engine.Op, t *task.Task, v dialect.View) ([]byte, error) {
	document, err := c.Codec.Result(op, t, v)
	return c.encode(op, document, err)
}

// Page renders the answer of OpList.
func (c *Codec) Page(p *engine.Page, v dialect.View) ([]byte, error) {
	document, err := c.Codec.Page(p, v)
	return c.encode(engine.OpList, document, err)
}

// Pushes renders the answer of an operation on push notification configurations.
func (c *Codec) Pushes(op engine.Op, p *engine.Pushes) ([]byte, error) {
	document, err := c.Codec.Pushes(op, p)
	return c.encode(op, document, err)
}

// Opening renders the first documents of a stream.
func (c *Codec) Opening(op engine.Op, t *task.Task) ([][]byte, error) {
	documents, err := c.Codec.Opening(op, t)
	for i := range documents {
		if documents[i], err = c.encode(op, documents[i], err); err != nil {
			return nil, err
		}
	}
	return documents, err
}

// Event renders a streamed event.
func (c *Codec) Event(t *task.Task, e *task.Event, passed bool) ([]byte, error) {
	document, err := c.Codec.Event(t, e, passed)
	return c.encode(engine.OpStream, document, err)
}

// Direct renders a bare Message reply.
func (c *Codec) Direct(t *task.Task, e *task.Event) ([]byte, error) {
	document, err := c.Codec.Direct(t, e)
	return c.encode(engine.OpStream, document, err)
}

// Encode converts an answer of an operation to its message.
func (c *Codec) Encode(op engine.Op, document []byte) ([]byte, error) {
	return c.encode(op, document, nil)
}

func (c *Codec) encode(op engine.Op, document []byte, err error) ([]byte, error) {
	if document == nil || err != nil {
		return nil, err
	}
	return fromJSON(document, c.replies[op].New().Interface())
}
