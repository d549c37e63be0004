import { Page } from "../components/Page";

export function AgentsPage() {
  return <Page title="Agents">Not written yet.</Page>;
}
