import { Page } from "../components/Page";

export function SystemPage() {
  return <Page title="System">Not written yet.</Page>;
}
