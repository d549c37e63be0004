package tracing

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Attributes of our own. Those with the name of a log field mean the same.
const (
	Agent     = attribute.Key("holdfast.agent")
	TaskID    = attribute.Key("holdfast.task_id")
	ContextID = attribute.Key("holdfast.context_id")
	Operation = attribute.Key("holdfast.operation")
	Binding   = attribute.Key("holdfast.binding")
	Version   = attribute.Key("holdfast.version") // of A2A
	Outcome   = attribute.Key("holdfast.outcome")
	Attempt   = attribute.Key("holdfast.attempt")
	Try       = attribute.Key("holdfast.try")
	Turn      = attribute.Key("holdfast.turn")
	Worker    = attribute.Key("holdfast.worker")
	Delivery  = attribute.Key("holdfast.delivery_id")
)

var system = semconv.MessagingSystemKey.String("holdfast")

// RPC begins the span of a call over gRPC. method is its full name.
func (t *Tracer) RPC(ctx context.Context, method string, values func(name string) []string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	method = strings.TrimPrefix(method, "/")
	return t.start(below(ctx, ReadContext(values)), method, trace.SpanKindServer,
		trace.WithAttributes(semconv.RPCSystemNameGRPC, semconv.RPCMethod(method)))
}

// Send begins the span of a message that goes to the queue of an agent, below that of ctx. The run of the message continues
// its context.
func Send(ctx context.Context, agent string) (context.Context, *Span) {
	t := of(ctx)
	if t == nil {
		return ctx, nil
	}
	return t.start(ctx, "send "+agent, trace.SpanKindProducer, trace.WithAttributes(
		system, semconv.MessagingDestinationName(agent), semconv.MessagingOperationName("send"), semconv.MessagingOperationTypeSend))
}

// Call is Send for a call of another agent: it has the context of the run that calls, instead of a parent in this process.
func (t *Tracer) Call(ctx context.Context, c Context, agent string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	return Send(context.WithValue(below(ctx, c), contextKey{}, t), agent)
}

// Run says what a run works for.
type Run struct {
	Agent     string
	Context   Context // of the request that brought the message
	Created   Context // of the request that created the task
	TaskID    string
	ContextID string
	Worker    string
	Attempt   int
	Try       int
	Turn      int
}

// Process begins the span of a run: one for each attempt. It is part of the trace that brought the message, and has a link to
// the span that created the task.
func (t *Tracer) Process(ctx context.Context, r *Run) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	options := []trace.SpanStartOption{trace.WithAttributes(
		system, semconv.MessagingDestinationName(r.Agent), semconv.MessagingOperationName("process"), semconv.MessagingOperationTypeProcess,
		semconv.MessagingMessageConversationID(r.ContextID), TaskID.String(r.TaskID), ContextID.String(r.ContextID),
		Agent.String(r.Agent), Worker.String(r.Worker), Attempt.Int(r.Attempt), Try.Int(r.Try), Turn.Int(r.Turn),
	)}
	if created := r.Created.span(); created.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: created}))
	}
	return t.start(below(ctx, r.Context), "process "+r.Agent, trace.SpanKindConsumer, options...)
}

// Webhook is one attempt to deliver a notification.
type Webhook struct {
	Created Context // of the request that created the task
	Agent   string
	TaskID  string
	ID      string // of the delivery
}

// Deliver begins the span of a webhook's delivery, in the trace that created the task.
func (t *Tracer) Deliver(ctx context.Context, w *Webhook) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	return t.start(below(ctx, w.Created), "deliver "+w.Agent, trace.SpanKindInternal, trace.WithAttributes(
		Agent.String(w.Agent), TaskID.String(w.TaskID), Delivery.String(w.ID)))
}

// Invoke begins the span of an agent's work by the conventions for generative AI, if the environment opts in to them.
func Invoke(ctx context.Context, agent, conversation string) (context.Context, *Span) {
	t := of(ctx)
	if t == nil || !t.genAI {
		return ctx, nil
	}
	return t.start(ctx, "invoke_agent "+agent, trace.SpanKindClient, trace.WithAttributes(
		genAIOperation.String("invoke_agent"), genAIProvider.String("holdfast"), genAIAgent.String(agent), genAIConversation.String(conversation)))
}

// Chat begins the span of a model's answer by the same conventions.
func Chat(ctx context.Context, provider, model string) (context.Context, *Span) {
	t := of(ctx)
	if t == nil || !t.genAI {
		return ctx, nil
	}
	return t.start(ctx, "chat "+model, trace.SpanKindClient, trace.WithAttributes(
		genAIOperation.String("chat"), genAIProvider.String(provider), genAIModel.String(model)))
}

// Answered is what a model says about its answer.
type Answered struct {
	Model, Finish string
	Input, Output int // tokens; 0: it does not say
}

// maxSaid bounds each text that a model says about its answer, in bytes.
const maxSaid = 128

// said returns the beginning of a text of a remote model, which could be of any length.
func said(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxSaid)], "") }

// Answered sets what a model says about its answer.
func (s *Span) Answered(a Answered) {
	s.Set(genAIAnswerModel.String(said(a.Model)))
	if a.Finish != "" {
		s.Set(genAIFinish.StringSlice([]string{said(a.Finish)}))
	}
	if a.Input > 0 || a.Output > 0 {
		s.Set(genAIInput.Int(a.Input), genAIOutput.Int(a.Output))
	}
}

// The conventions for generative AI have left the package of stable ones.
const (
	genAIOperation    = attribute.Key("gen_ai.operation.name")
	genAIProvider     = attribute.Key("gen_ai.provider.name")
	genAIAgent        = attribute.Key("gen_ai.agent.name")
	genAIConversation = attribute.Key("gen_ai.conversation.id")
	genAIModel        = attribute.Key("gen_ai.request.model")
	genAIAnswerModel  = attribute.Key("gen_ai.response.model")
	genAIFinish       = attribute.Key("gen_ai.response.finish_reasons")
	genAIInput        = attribute.Key("gen_ai.usage.input_tokens")
	genAIOutput       = attribute.Key("gen_ai.usage.output_tokens")
)

// CallRPC begins the span of a call over gRPC to another server, whose URL is address. The caller sends its context.
func CallRPC(ctx context.Context, method, address string) (context.Context, *Span) {
	t := of(ctx)
	if t == nil {
		return ctx, nil
	}
	method = strings.TrimPrefix(method, "/")
	return t.start(ctx, method, trace.SpanKindClient, trace.WithAttributes(
		append(server(hostOf(address)), semconv.RPCSystemNameGRPC, semconv.RPCMethod(method))...))
}

// hostOf returns the host and port of a URL.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Host
	}
	return ""
}

// server returns the attributes of a host and port.
func server(address string) []attribute.KeyValue {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return []attribute.KeyValue{semconv.ServerAddress(address)}
	}
	all := []attribute.KeyValue{semconv.ServerAddress(host)}
	if n, err := strconv.Atoi(port); err == nil {
		all = append(all, semconv.ServerPort(n))
	}
	return all
}
