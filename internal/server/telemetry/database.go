package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Database is what the database holds.
type Database struct {
	Bytes      int64
	Tables     []Table
	Partitions []Partitions
	// APIKeys are the numbers of API keys, by the statuses active, expiring, expired and revoked.
	APIKeys map[string]int64
}

// Table is a table on disk with its indexes. The partitions of a table count with it.
type Table struct {
	Name        string
	Bytes, Dead int64 // Dead: rows that vacuum has not removed
}

// Partitions are those of one kind of data.
type Partitions struct {
	Of         string        // the kind of data
	Begin, End time.Time     // of what they cover without a gap; Begin is zero without partitions
	Ahead      time.Duration // how far ahead of now they are created
	Attached   int
	Detaching  int // a detach was interrupted
	Detached   int // they wait to be dropped
}

// RegisterDatabase exports what the database holds.
func RegisterDatabase(reg prometheus.Registerer, figures *Figures[Database]) {
	reg.MustRegister(&databaseCollector{
		figures: figures,
		bytes: prometheus.NewDesc("holdfast_database_bytes",
			"Size of the database on disk. The free space is not known to SQL: watch the disk of the database server, or alert on the growth.", nil, nil),
		table: prometheus.NewDesc("holdfast_table_bytes",
			"Size of a table on disk, with its indexes and its partitions; that of a partition is as its last vacuum or analyze found it. The logs of tasks are `events_log` (messages, statuses), `events_artifacts` and `events_kept`. `detached`: partitions that wait to be dropped.", []string{"table"}, nil),
		dead: prometheus.NewDesc("holdfast_table_dead_rows",
			"Rows of a table that are dead and that vacuum has not removed, as PostgreSQL estimates them. If those of `task_queue` or `tasks_open` grow for hours, a long transaction or a replication slot holds vacuum back.", []string{"table"}, nil),
		partitions: prometheus.NewDesc("holdfast_partitions",
			"Partitions of a `family`: `tasks`, `idempotency_keys`, `delivery_attempts`, `audit`. `status`: `attached`, `detaching` (interrupted; the next round of retention goes on) or `detached` (waits to be dropped).", []string{"family", "status"}, nil),
		begin: prometheus.NewDesc("holdfast_partitions_begin_timestamp_seconds",
			"Unix time at which the oldest partition begins. Retention drops whole partitions.", []string{"family"}, nil),
		end: prometheus.NewDesc("holdfast_partitions_end_timestamp_seconds",
			"Unix time up to which partitions exist, from now on without a gap.", []string{"family"}, nil),
		ahead: prometheus.NewDesc("holdfast_partitions_ahead_seconds",
			"How far ahead partitions are created. New ones follow when less than two thirds of it are left.", []string{"family"}, nil),
		keys: prometheus.NewDesc("holdfast_api_keys",
			"API keys of clients. `status`: `active`, `expiring` (within 7 days; not those that live for at most 14 days), `expired`, `revoked`.", []string{"status"}, nil),
	})
}

type databaseCollector struct {
	figures                                                 *Figures[Database]
	bytes, table, dead, partitions, begin, end, ahead, keys *prometheus.Desc
}

func (c *databaseCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.bytes, c.table, c.dead, c.partitions, c.begin, c.end, c.ahead, c.keys} {
		ch <- d
	}
}

func (c *databaseCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	found, known := c.figures.get()
	if !known {
		return
	}
	gauge(c.bytes, float64(found.Bytes))
	for _, t := range found.Tables {
		gauge(c.table, float64(t.Bytes), t.Name)
		gauge(c.dead, float64(t.Dead), t.Name)
	}
	for _, p := range found.Partitions {
		gauge(c.partitions, float64(p.Attached), p.Of, "attached")
		gauge(c.partitions, float64(p.Detaching), p.Of, "detaching")
		gauge(c.partitions, float64(p.Detached), p.Of, "detached")
		if !p.Begin.IsZero() {
			gauge(c.begin, float64(p.Begin.Unix()), p.Of)
		}
		gauge(c.end, float64(p.End.Unix()), p.Of)
		gauge(c.ahead, p.Ahead.Seconds(), p.Of)
	}
	for status, n := range found.APIKeys {
		gauge(c.keys, float64(n), status)
	}
}
