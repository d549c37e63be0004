package main

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/agent/agenttest"
)

func TestPlansThreeDays(t *testing.T) {
	task := agenttest.New(t, agent.Durable(trip))
	task.Say("I need a holiday").Want("working", `input-required: "Where to?"`)
	task.Say("Oslo").Want("working",
		`artifact plan: "Day 1 in Oslo. "...`,
		`artifact plan: +"Day 2 in Oslo. "...`,
		`artifact plan: +"Day 3 in Oslo. "...`,
		`completed: "Enjoy Oslo!"`)
	if text := task.Text(); text != "Day 1 in Oslo. Day 2 in Oslo. Day 3 in Oslo. " {
		t.Error(text)
	}
}
