import { MutationCache, QueryCache, QueryClient } from "@tanstack/react-query";
import { createRootRoute, createRoute, createRouter } from "@tanstack/react-router";
import { ApiError } from "./api/client";
import { onDoubt, silence, subscribe } from "./api/reach";
import { ErrorBox } from "./components/ErrorBox";
import { Page } from "./components/Page";
import { Layout } from "./layout/Layout";
import { later } from "./layout/later";
import { parseSearch, type Search, stringifySearch } from "./lib/search";

/** A session may end while a page is open. Then the layout, which asks who the operator is, shows the login. */
function askWho(error: Error, key?: readonly unknown[]) {
  if (error instanceof ApiError && error.problem.status === 401 && key?.[0] !== "me") {
    void queries.invalidateQueries({ queryKey: ["me"] });
  }
}

export const queries: QueryClient = new QueryClient({
  queryCache: new QueryCache({ onError: (error, query) => askWho(error, query.queryKey) }),
  mutationCache: new MutationCache({ onError: (error) => askWho(error) }),
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      // A browser that knows no network does not know whether the server is on this machine.
      networkMode: "always",
      // A retry does not mend a request that is at fault.
      retry: (count, error) =>
        count < 3 && !(error instanceof ApiError && error.problem.status >= 400 && error.problem.status < 500),
      retryDelay: (count) => Math.min(1000 * 2 ** count, 10_000),
    },
  },
});

onDoubt(() => void queries.invalidateQueries({ queryKey: ["me"] }));
// What a page shows is old when the server is back.
subscribe(() => {
  if (!silence()) void queries.invalidateQueries({ predicate: (query) => query.queryKey[0] !== "me" });
});

const root = createRootRoute({
  component: Layout,
  notFoundComponent: () => (
    <Page title="No such page">
      <p className="muted">The address leads nowhere. Choose a page on the left, or press Ctrl K.</p>
    </Page>
  ),
  validateSearch: (search): Search => search as Search,
});

/** Each page is a file of its own, and is loaded when it is first shown. */
const routes = [
  createRoute({
    getParentRoute: () => root,
    path: "/",
    component: later(() => import("./routes/home").then((file) => file.HomePage)),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/tasks",
    component: later(() => import("./routes/tasks").then((file) => file.TasksPage)),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/tasks/$id",
    component: later(() => import("./routes/task").then((file) => file.TaskPage)),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/inbox",
    component: later(() => import("./routes/inbox").then((file) => file.InboxPage)),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/talk",
    component: later(() => import("./routes/talk").then((file) => file.TalkPage)),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/agents",
    component: later(() => import("./routes/agents").then((file) => file.AgentsPage)),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/agents/$name",
    component: later(() => import("./routes/agent").then((file) => file.AgentPage)),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/webhooks",
    component: later(() => import("./routes/webhooks").then((file) => file.WebhooksPage)),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/jobs",
    component: later(() => import("./routes/jobs").then((file) => file.JobsPage)),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/jobs/$id",
    component: later(() => import("./routes/job").then((file) => file.JobPage)),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/system",
    component: later(() => import("./routes/system").then((file) => file.SystemPage)),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/audit",
    component: later(() => import("./routes/audit").then((file) => file.AuditPage)),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/keys",
    component: later(() => import("./routes/keys").then((file) => file.KeysPage)),
  }),
] as const;

export const router = createRouter({
  routeTree: root.addChildren(routes),
  basepath: "/console",
  parseSearch,
  stringifySearch,
  defaultPreload: "intent",
  scrollRestoration: false,
  defaultErrorComponent: ({ error, reset }) => (
    <Page title="Something failed">
      <ErrorBox error={error} retry={reset} />
    </Page>
  ),
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
