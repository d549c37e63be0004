package main

import (
	"strings"
	"testing"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/agent/agenttest"
)

func TestTheBossDecides(t *testing.T) {
	for body, ends := range map[string]string{"yes": `completed: "Approved."`, "no": `rejected: "Your boss said no."`} {
		task := agenttest.New(t, agent.Func(approve))
		asked := task.Say("Send me to Oslo.").Message()
		if text := asked.Parts[0].Text; !strings.HasPrefix(text, "Your boss decides here: https://approvals.example/new?answer_to=https%3A%2F%2F") {
			t.Error(text)
		}
		task.Resume(agent.Resumed{Method: "POST", Body: []byte(body)}).Want("working", ends)
	}
}
