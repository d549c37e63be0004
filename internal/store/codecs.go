package store

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"
)

// registerCodecs makes a connection accept and return uuid.UUID, return times in UTC, and encode arrays without an allocation for
// each element.
func registerCodecs(m *pgtype.Map) {
	pgxuuid.Register(m)
	m.RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC}})
	m.RegisterType(&pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}})
	registerArray(m, pgtype.TextArrayOID, func(s string) int { return len(s) }, func(b []byte, s string) []byte { return append(b, s...) })
	registerArray(m, pgtype.BoolArrayOID, func(bool) int { return 1 }, func(b []byte, v bool) []byte {
		if v {
			return append(b, 1)
		}
		return append(b, 0)
	})
	registerArray(m, pgtype.Int2ArrayOID, func(int16) int { return 2 }, func(b []byte, n int16) []byte { return binary.BigEndian.AppendUint16(b, uint16(n)) })
	registerArray(m, pgtype.Int4ArrayOID, func(int32) int { return 4 }, func(b []byte, n int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) })
	registerArray(m, pgtype.Int8ArrayOID, func(int64) int { return 8 }, func(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) })
}

// uuidCodec scans the bytes of a uuid.UUID. pgx prefers the sql.Scanner of a type: it would format the bytes, and uuid.UUID
// would parse the text.
type uuidCodec struct{ pgxuuid.UUIDCodec }

// PlanScan implements pgtype.Codec.
func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if plan, next, ok := pgxuuid.TryWrapUUIDScanPlan(target); ok {
		if scan := c.UUIDCodec.PlanScan(m, oid, format, next); scan != nil {
			plan.SetNext(scan)
			return plan
		}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

// arrayCodec encodes a []T. pgx takes an interface value and a plan for each element, and its buffer grows many times while the
// payloads of a batch are appended.
type arrayCodec[T any] struct {
	*pgtype.ArrayCodec
	size func(T) int // of an element, in bytes
	add  func([]byte, T) []byte
}

func registerArray[T any](m *pgtype.Map, oid uint32, size func(T) int, add func([]byte, T) []byte) {
	known, _ := m.TypeForOID(oid)
	m.RegisterType(&pgtype.Type{Name: known.Name, OID: oid, Codec: arrayCodec[T]{known.Codec.(*pgtype.ArrayCodec), size, add}})
}

// PlanEncode implements pgtype.Codec.
func (c arrayCodec[T]) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.([]T); ok && format == pgtype.BinaryFormatCode {
		return c
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// Encode implements pgtype.EncodePlan.
func (c arrayCodec[T]) Encode(value any, b []byte) ([]byte, error) {
	all := value.([]T)
	if all == nil {
		return nil, nil
	}
	const header, length = 5 * 4, 4
	n := header
	for _, v := range all {
		n += length + c.size(v)
	}
	b = slices.Grow(b, n)
	for _, field := range []uint32{1, 0, c.ElementType.OID, uint32(len(all)), 1} { // dimensions, nulls, type, length, first index
		b = binary.BigEndian.AppendUint32(b, field)
	}
	for _, v := range all {
		b = binary.BigEndian.AppendUint32(b, uint32(c.size(v)))
		b = c.add(b, v)
	}
	return b, nil
}
