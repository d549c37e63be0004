import { Page } from "../components/Page";

export function KeysPage() {
  return <Page title="Keys">Not written yet.</Page>;
}
