// Package retention decides when the data of tasks may be deleted, and deletes it.
//
// Ended tasks and the logs of all tasks are stored in periods: partitions by the time in a task's
// id (package partition). A period is dropped as a whole when every task that ended in it is past
// its agent's retention, in these steps:
//
//	mark      mark open tasks of the period as kept: their new events go outside of it
//	move      move ended tasks that outlive the period (held, or ended late), and the logs of all kept tasks
//	export    write the rest to files, if an export directory is configured
//	forget    delete names and webhooks of the rest
//	detach    detach the partitions, tasks first, so that no reader sees a task without its log
//	return    copy back tasks that an operator has held meanwhile
//	drop      drop the partitions
//
// Each step works in small batches that skip locked rows. No step records that it is done: a
// process that takes over from a killed one finds the rest of the work in the tables. A period in
// which one agent keeps its tasks for longer cannot be dropped as a whole. There, and among kept
// tasks, rows are deleted batch by batch.
//
// Artifacts have their own partitions, which are dropped in the same way, before their tasks.
package retention
