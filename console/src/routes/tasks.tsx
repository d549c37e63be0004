import { Page } from "../components/Page";

export function TasksPage() {
  return <Page title="Tasks">Not written yet.</Page>;
}
