import { type ComponentType, type ReactNode, useEffect } from "react";
import { silent } from "../api/reach";
import { Page } from "../components/Page";

/**
 * later makes a page, or a part of one, that is loaded when it is first shown. Its file may be missing: the server is away, or was upgraded and has
 * other files. Then the browser loads everything again as soon as the server answers; the address is that of the new page already.
 */
export function later<P extends object>(
  load: () => Promise<ComponentType<P>>,
): ((props: P) => ReactNode) & { preload: () => Promise<void> } {
  let Loaded: ComponentType<P> | undefined;
  let failed = false;
  let loading: Promise<void> | undefined;
  const preload = () => {
    loading ??= load().then(
      (page) => {
        Loaded = page;
      },
      () => {
        failed = true;
      },
    );
    return loading;
  };
  function Later(props: P) {
    if (Loaded) return <Loaded {...props} />;
    if (failed) return <Missing />;
    throw preload();
  }
  return Object.assign(Later, { preload });
}

const every = 2_000;

function Missing() {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    let over = false;
    const look = async () => {
      const there = await fetch(import.meta.env.BASE_URL, { cache: "no-store" }).then(
        (answer) => answer.ok,
        () => false,
      );
      if (over) return;
      if (there && mayReload()) window.location.reload();
      else {
        if (!there) silent();
        timer = setTimeout(look, every);
      }
    };
    void look();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, []);
  return (
    <Page title="This page is missing">
      <p className="muted" role="status">
        The server does not have its file now. The page is loaded again as soon as the server has it.
      </p>
    </Page>
  );
}

/** mayReload bounds how often the browser loads everything again: replicas may have different versions during an upgrade. */
function mayReload(): boolean {
  const name = "holdfast.reloaded";
  const last = Number(sessionStorage.getItem(name) ?? 0);
  if (Date.now() - last < 10_000) return false;
  sessionStorage.setItem(name, String(Date.now()));
  return true;
}
