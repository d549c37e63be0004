// The documents that help where a page is empty, or something failed. A test holds them against docs/.

export const guides = {
  agents: ["executors.md", "How to plug in an agent"],
  audit: ["audit.md", "What the audit log records"],
  busy: ["limits.md#what-is-bounded", "What the server bounds"],
  credentials: ["operators.md#browsers", "How operators log in"],
  failing: ["troubleshoot.md", "Troubleshooting"],
  filters: ["console.md#find-tasks", "What filters select"],
  jobs: ["console.md#act-on-many", "How to act on many tasks"],
  keys: ["security.md#api-keys", "API keys and scopes"],
  questions: ["agents/questions.md", "How an agent asks"],
  retention: ["retention.md", "How long tasks stay"],
  scopes: ["operators.md#who-may", "Which scope may do what"],
  start: ["start.md", "Start with an agent and a client"],
  stuck: ["troubleshoot.md#a-task-does-not-go-on", "Why a task does not go on"],
  webhooks: ["webhooks.md", "How webhooks work"],
  workers: ["agents/worker.md", "How a worker connects"],
} as const satisfies Record<string, readonly [page: string, name: string]>;

export type Guide = keyof typeof guides;

/** address returns where the server has a document. */
export function address(guide: Guide): string {
  return `/docs/${guides[guide][0].replace(".md", ".html")}`;
}
