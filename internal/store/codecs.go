package store

import (
	"github.com/jackc/pgx/v5/pgtype"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"
)

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

// registerUUID makes a connection accept and return uuid.UUID.
func registerUUID(m *pgtype.Map) {
	pgxuuid.Register(m)
	m.RegisterType(&pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}})
}
