// Command approve is an agent whose answer comes from somebody else than its client.
package main

import (
	"context"
	"net/url"
	"time"

	"github.com/holdfast-a2a/holdfast/agent"
)

// approve lets the client's boss decide.
func approve(ctx context.Context, run *agent.Run, out agent.Emitter) error {
	if run.Input == nil || run.Input.Source != agent.Callback {
		link := "https://approvals.example/new?answer_to=" + url.QueryEscape(run.ResumeURL)
		return out.Ask(ctx, agent.Ask{Message: agent.Say("Your boss decides here: " + link), Resume: &agent.Resume{For: 48 * time.Hour}})
	}
	if string(run.Input.Resumed.Body) != "yes" {
		return out.Reject(ctx, agent.Say("Your boss said no."))
	}
	return out.Complete(ctx, agent.Say("Approved."))
}

func main() {
	agent.Main(map[string]agent.Executor{"approve": agent.Func(approve)})
}
