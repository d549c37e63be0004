package binary

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-a2a/holdfast/internal/rpc/strictjson"
)

// toJSON renders a message, without the spaces that the library puts in at random: what
// is opaque in it is kept as it stands.
func toJSON(m proto.Message) ([]byte, error) {
	b, err := protojson.Marshal(m)
	return strictjson.Compact(b), err
}

var reading = protojson.UnmarshalOptions{DiscardUnknown: true}

// fromJSON renders a document as a message. Members that the message has no field for
// are left out.
func fromJSON(document []byte, m proto.Message) ([]byte, error) {
	if err := reading.Unmarshal(document, m); err != nil {
		// Rarely is there a number in opaque JSON that a double cannot hold.
		plain, changed := withinDouble(document)
		if !changed {
			return nil, fmt.Errorf("binary form: %w", err)
		}
		proto.Reset(m)
		if err := reading.Unmarshal(plain, m); err != nil {
			return nil, fmt.Errorf("binary form: %w", err)
		}
	}
	return proto.Marshal(m)
}

// withinDouble writes numbers that a double cannot hold as strings of their digits.
func withinDouble(document []byte) (plain []byte, changed bool) {
	d := jsontext.NewDecoder(bytes.NewReader(document))
	var out bytes.Buffer
	e := jsontext.NewEncoder(&out)
	for {
		v, err := d.ReadToken()
		if err != nil {
			return out.Bytes(), changed
		}
		if v.Kind() == '0' {
			if f, err := strconv.ParseFloat(v.String(), 64); err != nil || math.IsInf(f, 0) {
				v, changed = jsontext.String(v.String()), true
			}
		}
		if e.WriteToken(v) != nil {
			return nil, false
		}
	}
}
