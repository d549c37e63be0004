import { MutationCache, QueryCache, QueryClient } from "@tanstack/react-query";
import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { ApiError } from "./api/client";
import { ErrorBox } from "./components/ErrorBox";
import { Page } from "./components/Page";
import { Layout } from "./layout/Layout";
import { parseSearch, type Search, stringifySearch } from "./lib/search";
import { TasksPage } from "./routes/tasks";

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
      // A retry does not mend a request that is at fault.
      retry: (count, error) =>
        count < 3 && !(error instanceof ApiError && error.problem.status >= 400 && error.problem.status < 500),
      retryDelay: (count) => Math.min(1000 * 2 ** count, 10_000),
    },
  },
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

/** Each page but the first is a file of its own, and is loaded when it is first shown. */
const routes = [
  createRoute({
    getParentRoute: () => root,
    path: "/",
    beforeLoad: () => {
      throw redirect({ to: "/tasks" });
    },
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/tasks",
    component: TasksPage,
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/tasks/$id",
    component: lazyRouteComponent(() => import("./routes/task"), "TaskPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/talk",
    component: lazyRouteComponent(() => import("./routes/talk"), "TalkPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/agents",
    component: lazyRouteComponent(() => import("./routes/agents"), "AgentsPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/agents/$name",
    component: lazyRouteComponent(() => import("./routes/agent"), "AgentPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/webhooks",
    component: lazyRouteComponent(() => import("./routes/webhooks"), "WebhooksPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/jobs",
    component: lazyRouteComponent(() => import("./routes/jobs"), "JobsPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/jobs/$id",
    component: lazyRouteComponent(() => import("./routes/job"), "JobPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/system",
    component: lazyRouteComponent(() => import("./routes/system"), "SystemPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/audit",
    component: lazyRouteComponent(() => import("./routes/audit"), "AuditPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/keys",
    component: lazyRouteComponent(() => import("./routes/keys"), "KeysPage"),
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
