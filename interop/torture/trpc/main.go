// Command trpc is an agent that obeys the contract of docs/torture.md, on the server of trpc-a2a-go, with tasks in memory: trpc PORT.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"trpc.group/trpc-go/trpc-a2a-go/protocol"
	"trpc.group/trpc-go/trpc-a2a-go/server"
	"trpc.group/trpc-go/trpc-a2a-go/taskmanager"
)

func main() {
	addr := "127.0.0.1:" + os.Args[1]
	description, yes := "Obeys the contract of docs/torture.md.", true
	// The default drops events of streams whose buffer is full.
	manager, err := taskmanager.NewMemoryTaskManager(agent{}, taskmanager.WithTaskSubscriberBlockingSend(true))
	if err != nil {
		log.Fatal(err)
	}
	s, err := server.NewA2AServer(server.AgentCard{
		Name: "torture", Description: description, URL: "http://" + addr + "/", Version: "1",
		Capabilities:      server.AgentCapabilities{Streaming: &yes},
		DefaultInputModes: []string{"text"}, DefaultOutputModes: []string{"text"},
		Skills: []server.AgentSkill{{ID: "torture", Name: "Torture", Description: &description, Tags: []string{"test"}}},
	}, manager)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(s.Start(addr))
}

type agent struct{}

// ProcessMessage implements taskmanager.MessageProcessor.
func (agent) ProcessMessage(_ context.Context, m protocol.Message, o taskmanager.ProcessOptions, h taskmanager.TaskHandler) (*taskmanager.MessageProcessingResult, error) {
	if len(m.Parts) == 0 {
		return nil, errors.New("a message without parts")
	}
	said, answers := m.Parts[0].(*protocol.TextPart).Text, m.TaskID != nil && *m.TaskID != ""
	id := ""
	if answers {
		id = *m.TaskID
	} else {
		built, err := h.BuildTask(nil, m.ContextID)
		if err != nil {
			return nil, err
		}
		id = built
	}
	task, err := h.GetTask(&id)
	if err != nil {
		return nil, err
	}
	var events taskmanager.TaskSubscriber
	if o.Streaming {
		if events, err = h.SubscribeTask(&id); err != nil {
			return nil, err
		}
		whole := task.Task()
		_ = events.Send(protocol.StreamingMessageEvent{Result: whole})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if events != nil {
			defer events.Close()
		}
		perform(h, id, said, m.MessageID, answers)
	}()
	if o.Streaming {
		return &taskmanager.MessageProcessingResult{StreamingEvents: events}, nil
	}
	if o.Blocking {
		<-done
	}
	if task, err = h.GetTask(&id); err != nil {
		return nil, err
	}
	return &taskmanager.MessageProcessingResult{Result: task.Task()}, nil
}

// perform does what a message says. Where the task is gone, it stops: the manager removes canceled tasks.
func perform(h taskmanager.TaskHandler, id, said, message string, answers bool) {
	artifact := func(name, text string, more, last bool) bool {
		a := protocol.Artifact{ArtifactID: name, Parts: []protocol.Part{protocol.NewTextPart(text)}}
		return h.AddArtifact(&id, a, last, more) == nil
	}
	if h.UpdateTaskState(&id, protocol.TaskStateWorking, nil) != nil {
		return
	}
	if answers && !artifact(message, "You said: "+said, false, true) {
		return
	}
	if question, asks := strings.CutPrefix(said, "torture ask "); asks {
		m := protocol.NewMessage(protocol.MessageRoleAgent, []protocol.Part{protocol.NewTextPart(question)})
		_ = h.UpdateTaskState(&id, protocol.TaskStateInputRequired, &m)
		return
	}
	verb, rest, _ := strings.Cut(strings.TrimPrefix(said, "torture "), " ")
	var count, size, pause int
	switch {
	case answers:
	case verb == "echo":
		artifact("echo", rest, false, true)
	case verb == "chunks":
		if _, err := fmt.Sscan(rest, &count, &size, &pause); err != nil {
			return
		}
		for i := range count {
			if i > 0 {
				time.Sleep(time.Duration(pause) * time.Millisecond)
			}
			if text := fmt.Sprintf("%08d", i); !artifact("chunks", text+strings.Repeat(".", size-len(text)), i > 0, i == count-1) {
				return
			}
		}
	case verb == "sleep":
		_, _ = fmt.Sscan(rest, &pause)
		time.Sleep(time.Duration(pause) * time.Millisecond)
	case verb == "hold":
		for {
			if _, err := h.GetTask(&id); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	_ = h.UpdateTaskState(&id, protocol.TaskStateCompleted, nil)
}
