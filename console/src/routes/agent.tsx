import { getRouteApi } from "@tanstack/react-router";
import { Page } from "../components/Page";

const route = getRouteApi("/agents/$name");

export function AgentPage() {
  const { name } = route.useParams();
  return <Page title={name}>Not written yet.</Page>;
}
