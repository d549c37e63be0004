// An AgentExecutor of @a2a-js/sdk 1.x, unchanged, as an agent of Holdfast.
import { TaskState } from "@a2a-js/sdk";
import { AgentEvent } from "@a2a-js/sdk/server";
import { agent, serve } from "holdfast-agent";
import { wrap } from "holdfast-agent/a2a";

class Echo {
  async execute({ taskId, contextId, userMessage, task }, bus) {
    const status = (state) => ({ state, message: undefined, timestamp: new Date().toISOString() });
    bus.publish(
      AgentEvent.task(
        task ?? {
          id: taskId,
          contextId,
          status: status(TaskState.TASK_STATE_SUBMITTED),
          artifacts: [],
          history: [userMessage],
          metadata: undefined,
        },
      ),
    );
    const artifact = { artifactId: "echo", name: "echo", description: "", parts: userMessage.parts, metadata: undefined, extensions: [] };
    bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, artifact, append: false, lastChunk: true, metadata: undefined }));
    bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(TaskState.TASK_STATE_COMPLETED), metadata: undefined }));
  }

  async cancelTask() {}
}

serve(agent("echo", wrap(new Echo())));
