import { getRouteApi } from "@tanstack/react-router";
import { Page } from "../components/Page";

const route = getRouteApi("/tasks/$id");

export function TaskPage() {
  const { id } = route.useParams();
  return <Page title={id}>Not written yet.</Page>;
}
