package admin

import (
	"encoding/json"
	"math"

	"github.com/holdfast-a2a/holdfast/internal/store"
)

// Price is what a million tokens of a model cost.
type Price struct{ Input, Output float64 }

// Prices are those of models, by name, in one currency.
type Prices map[string]Price

// cost returns what tokens of a model cost, rounded to a billionth; 0: the model has no price.
func (p Prices) cost(model string, input, output float64) float64 {
	of := p[model]
	return math.Round((input*of.Input+output*of.Output)*1e3) / 1e9
}

func (p Prices) ofTask(t *store.AdminTask) (sum float64) {
	if len(p) == 0 {
		return 0
	}
	for _, u := range t.Used {
		sum += p.cost(u.Model, float64(u.Input), float64(u.Output))
	}
	return sum
}

func (p Prices) ofUsage(u *store.AdminUsage) float64 {
	number := func(n json.Number) float64 { f, _ := n.Float64(); return f } // the database writes whole numbers
	return p.cost(u.Model, number(u.Input), number(u.Output))
}
