import { Page } from "../components/Page";

export function TalkPage() {
  return <Page title="Talk">Not written yet.</Page>;
}
