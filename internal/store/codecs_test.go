package store

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// An array is encoded as by pgx.
func TestArraysAreEncodedAsByPgx(t *testing.T) {
	theirs, ours := pgtype.NewMap(), pgtype.NewMap()
	registerCodecs(ours)
	type named []string
	text := "text"
	for oid, arrays := range map[uint32][]any{
		pgtype.TextArrayOID: {
			[]string(nil),
			[]string{},
			[]string{""},
			[]string{"a", "", strings.Repeat("ü", 5000), "\x00\xff"},
			named{"a"},
			[]*string{&text, nil},
			&[]string{"a"},
			pgtype.FlatArray[string]{"a", "b"},
		},
		pgtype.BoolArrayOID: {[]bool(nil), []bool{}, []bool{true, false, true}},
		pgtype.Int2ArrayOID: {[]int16(nil), []int16{}, []int16{0, -1, 32767, -32768}},
		pgtype.Int4ArrayOID: {[]int32(nil), []int32{}, []int32{0, -1, 1 << 30, -1 << 31}},
		pgtype.Int8ArrayOID: {[]int64(nil), []int64{}, []int64{0, -1, 1 << 62, -1 << 63}},
	} {
		for _, array := range arrays {
			for _, format := range []int16{pgtype.BinaryFormatCode, pgtype.TextFormatCode} {
				want := storetest.Must(theirs.Encode(oid, format, array, []byte("before")))(t)
				require.Equal(t, want, storetest.Must(ours.Encode(oid, format, array, []byte("before")))(t), "%v", array)
			}
		}
	}
	texts := []string{"a", "b", "c"}
	m := pgtype.NewMap()
	registerCodecs(m)
	buffer := make([]byte, 0, 100)
	plan := m.PlanEncode(pgtype.TextArrayOID, pgtype.BinaryFormatCode, texts)
	var value any = texts
	require.Zero(t, testing.AllocsPerRun(10, func() { _, _ = plan.Encode(value, buffer) }))
}

// pgx writes a uuid as text and parses it, unless our codec scans it.
func TestScansOfUUIDsTakeNoMemory(t *testing.T) {
	m := pgtype.NewMap()
	registerCodecs(m)
	want := uuid.New()
	var got uuid.UUID
	plan := m.PlanScan(pgtype.UUIDOID, pgtype.BinaryFormatCode, &got)
	require.NoError(t, plan.Scan(want[:], &got))
	require.Equal(t, want, got)
	require.Zero(t, testing.AllocsPerRun(10, func() { _ = plan.Scan(want[:], &got) }))

	var all []uuid.UUID
	encoded := storetest.Must(m.Encode(pgtype.UUIDArrayOID, pgtype.BinaryFormatCode, []uuid.UUID{want, want}, nil))(t)
	require.NoError(t, m.Scan(pgtype.UUIDArrayOID, pgtype.BinaryFormatCode, encoded, &all))
	require.Equal(t, []uuid.UUID{want, want}, all)
	var none *uuid.UUID
	require.NoError(t, m.Scan(pgtype.UUIDOID, pgtype.BinaryFormatCode, nil, &none))
	require.Nil(t, none)
}
