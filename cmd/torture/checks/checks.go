package checks

import "context"

// check is one check. Its name is part of reports, so it does not change.
type check struct {
	name   string
	clause Clause
	do     func(context.Context, *probe)
	// continues says that the check looks at the same requests as the one before.
	continues bool
}

// checks are all checks, in the order in which they run. The sections are those of the specification of A2A 1.0.
var checks = []check{
	{"acknowledged-tasks", Clause{
		"promise; §3.1.3", "A task that the server has acknowledged is there after a restart, with all that clients were told about it.",
	}, acknowledgedTasks, false},
	{"interrupted-work", Clause{
		"promise", "A task that was accepted ends, also if the process that worked on it dies: with its whole result, or in a state that says that it failed.",
	}, interruptedWork, true},
	{"resumed-streams", Clause{
		"resume extension", "A stream that is resumed after its last event, at any address, also after a restart, has every later event, in order and once.",
	}, resumedStreams, true},
	{"streams", Clause{
		"§3.1.2, §3.5.2", "A stream begins with the task and has all events in order and once, every stream of a task has the same events, and the last answer agrees with Get Task.",
	}, streams, false},
	{"resubscription", Clause{
		"§3.1.6; resume extension", "A subscription begins with the task as it is and misses nothing after that. To a task that has ended it is refused. After the id of an event, where the card announces that, it has exactly the events after it.",
	}, resubscription, false},
	{"conversations", Clause{
		"§3.4.3", "A task that asks several times keeps what came of every answer, at whichever address it arrives.",
	}, conversations, false},
	{"races", Clause{
		"§3.1.3, §3.1.5", "Of a cancel, an answer and a completion at the same time one ends the task. All clients learn the same end, and it never changes.",
	}, races, false},
	{"repeats", Clause{
		"§3.3.1; idempotency extension", "A repeated message is stored once where the card announces Idempotency-Key, or for its messageId if the server uses that. Cancels may be repeated.",
	}, repeats, false},
	{"lists", Clause{
		"§3.1.4", "The pages of a list have every task that existed before the first page, once, while others are written, and only tasks that fit.",
	}, lists, false},
	{"webhooks", Clause{
		"§4.3.3", "A webhook whose receiver is there gets every status of its task.",
	}, webhooks, false},
	{"webhook-retries", Clause{
		"promise", "A webhook gets every status of its task, and every chunk if the server sends chunks, in order and once, also if its receiver was away for a while.",
	}, webhookRetries, false},
	{"owners", Clause{
		"§3.3.2, §13.1", "To another caller, a task does not exist: every request gets the answer for an unknown task, and changes nothing.",
	}, owners, false},
	{"versions", Clause{
		"§5.1", "All versions and bindings that the server offers show the same task, and continue it.",
	}, versions, false},
	{"slow-readers", Clause{
		"§3.5.2", "Clients that do not read their streams, or leave them, disturb no other stream and no other request.",
	}, slowReaders, false},
	{"growth", Clause{
		"promise", "The cost of an event does not grow with what its task already has.",
	}, growth, false},
	{"hostile-input", Clause{
		"§3.3.2, §9.5, §11.6", "A request that is wrong gets an error that says so, not an internal error, and the server lives on.",
	}, hostileInput, false},
}
