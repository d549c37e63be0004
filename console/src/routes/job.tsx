import { getRouteApi } from "@tanstack/react-router";
import { Page } from "../components/Page";

const route = getRouteApi("/jobs/$id");

export function JobPage() {
  const { id } = route.useParams();
  return <Page title={id}>Not written yet.</Page>;
}
