import { Link, Outlet, useRouter } from "@tanstack/react-router";
import { useState } from "react";
import { ApiError } from "../api/client";
import { Toasts } from "../components/Toast";
import { useShortcut } from "../lib/shortcuts";
import { Login } from "./Login";
import { useMe } from "./me";
import { may, pages } from "./nav";
import { Who } from "./Who";
import "./Layout.css";

/** Layout is what all pages have: the navigation, the palette, the list of keys, the toasts. */
export function Layout() {
  const { data: me, error } = useMe();
  const [open, setOpen] = useState(false);
  const [issuerLogout, setIssuerLogout] = useState("");
  const stranger = error instanceof ApiError && error.problem.status === 401;
  return (
    <div className="layout" data-open={open || undefined}>
      <a className="layout-skip" href="#main">
        Skip to the page
      </a>
      <nav className="layout-nav" aria-label="Pages">
        <div className="layout-brand">
          <img src={`${import.meta.env.BASE_URL}icon.svg`} alt="" width="20" height="20" />
          Holdfast
          <button type="button" className="layout-menu" aria-expanded={open} onClick={() => setOpen(!open)}>
            Menu
          </button>
        </div>
        <ul>
          {pages.map((page) => (
            <li key={page.to}>
              <GoTo page={page} />
              {may(page.to, me) && (
                <Link
                  to={page.to}
                  className="layout-link"
                  activeProps={{ "aria-current": "page" }}
                  onClick={() => setOpen(false)}
                >
                  <svg viewBox="0 0 16 16" aria-hidden="true">
                    <path d={page.icon} />
                  </svg>
                  {page.name}
                </Link>
              )}
            </li>
          ))}
        </ul>
        {me && !stranger && (
          <div className="layout-foot">
            <Who me={me} onLogout={setIssuerLogout} />
          </div>
        )}
      </nav>
      {stranger ? <Login ways={error.problem.login} issuerLogout={issuerLogout} /> : <Outlet />}
      <Toasts />
    </div>
  );
}

function GoTo({ page }: { page: (typeof pages)[number] }) {
  const router = useRouter();
  useShortcut(`g ${page.key}`, page.name, "Go to", () => router.navigate({ to: page.to }));
  return null;
}
