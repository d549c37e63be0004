import { Link, Outlet, useRouter } from "@tanstack/react-router";
import { useState } from "react";
import { Toasts } from "../components/Toast";
import { useShortcut } from "../lib/shortcuts";
import { useMe } from "./me";
import { may, pages } from "./nav";
import "./Layout.css";

/** Layout is what all pages have: the navigation, the palette, the list of keys, the toasts. */
export function Layout() {
  const { data: me } = useMe();
  const [open, setOpen] = useState(false);
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
      </nav>
      <Outlet />
      <Toasts />
    </div>
  );
}

function GoTo({ page }: { page: (typeof pages)[number] }) {
  const router = useRouter();
  useShortcut(`g ${page.key}`, page.name, "Go to", () => router.navigate({ to: page.to }));
  return null;
}
