import { Page } from "../components/Page";

export function WebhooksPage() {
  return <Page title="Webhooks">Not written yet.</Page>;
}
