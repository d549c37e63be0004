// Package openai is the executor for models behind the Chat Completions API of OpenAI, which most providers and gateways
// speak, or behind its Responses API. Both formats share the conversation, the writer and the loop of tools. The conversation of the context is the model's memory. docs/agents/openai.md has the operator's side.
//
// # A run
//
//	conversation ── call the model ── no calls of tools ── last chunk, completed
//	      ▲                │
//	      │                ├── refusal, content filter ── rejected
//	      │                │
//	      └── result ── calls of tools ── approval needed: input-required; the answer is the next turn
//	                          └── of agents: the run ends; their results are the next turn
//
// The answer is one artifact for each turn. A run that is retried replaces it with its first chunk, so a broken stream
// leaves nothing doubled. Each step with tools (what the model said, the beginning of a call, its result) is a checkpoint,
// committed before the next one: a later run of the turn continues there, and repeats no finished call.
//
// Answers of the model's API are foreign: the executor checks their size, depth and types, and keeps the secrets of the
// configuration out of errors.
package openai
