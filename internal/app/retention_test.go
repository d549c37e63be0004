package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/maintenance"
)

// The duties of retention come often enough for every retention that they serve, so that data stays only a fraction longer.
func TestRetentionDutiesComeInTime(t *testing.T) {
	t.Parallel()
	for _, keep := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour, 24 * time.Hour, 90 * 24 * time.Hour} {
		for name, set := range map[string]func(*config.Retention){
			"retention_tasks":   func(r *config.Retention) { r.Tasks = config.Keep(keep) },
			"keys":              func(r *config.Retention) { r.IdempotencyKeys = config.Keep(keep) },
			"delivery attempts": func(r *config.Retention) { r.DeliveryAttempts = config.Keep(keep) },
			"audit":             func(r *config.Retention) { r.Audit = config.Keep(keep) },
			"processes":         func(r *config.Retention) { r.Processes = config.Keep(keep) },
		} {
			cfg := &config.Config{}
			set(&cfg.Retention)
			want := name
			if name != "retention_tasks" {
				want = "retention_records"
			}
			every := dutyOf(t, cfg, want).Every
			require.LessOrEqual(t, every, max(10*time.Second, keep/16), "%s for %s", name, keep)
			require.LessOrEqual(t, every, 10*time.Minute, "%s for %s", name, keep)
		}
	}
	require.Equal(t, 10*time.Minute, dutyOf(t, &config.Config{}, "retention_records").Every)
}

func dutyOf(t *testing.T, cfg *config.Config, name string) maintenance.Duty {
	t.Helper()
	for _, d := range retentionDuties(&env{cfg: cfg}, nil) {
		if d.Name == name {
			return d
		}
	}
	require.FailNow(t, "no duty "+name)
	return maintenance.Duty{}
}
