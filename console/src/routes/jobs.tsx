import { Page } from "../components/Page";

export function JobsPage() {
  return <Page title="Jobs">Not written yet.</Page>;
}
