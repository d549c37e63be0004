import { Link, Outlet, useRouter } from "@tanstack/react-router";
import { useCallback, useState } from "react";
import { Toasts } from "../components/Toast";
import { change, type Settings, useSettings } from "../lib/settings";
import { useShortcut } from "../lib/shortcuts";
import { zoneName } from "../lib/time";
import { KeyHelp } from "./KeyHelp";
import { useMe } from "./me";
import { may, pages } from "./nav";
import { Palette } from "./Palette";
import "./Layout.css";

/** Layout is what all pages have: the navigation, the palette, the list of keys, the toasts. */
export function Layout() {
  const { data: me } = useMe();
  const [open, setOpen] = useState(false);
  const [keys, setKeys] = useState(false);
  const showKeys = useCallback(() => setKeys(true), []);
  useShortcut("?", "Keyboard shortcuts", "Everywhere", showKeys);
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
        <Foot onKeys={showKeys} />
      </nav>
      <Outlet />
      <Palette onKeys={showKeys} />
      <KeyHelp open={keys} onClose={() => setKeys(false)} />
      <Toasts />
    </div>
  );
}

function GoTo({ page }: { page: (typeof pages)[number] }) {
  const router = useRouter();
  useShortcut(`g ${page.key}`, page.name, "Go to", () => router.navigate({ to: page.to }));
  return null;
}

const themes: Settings["theme"][] = ["system", "light", "dark"];
const themeNames = { system: "System theme", light: "Light theme", dark: "Dark theme" };

/** Foot has the settings, and who the operator is. */
function Foot({ onKeys }: { onKeys: () => void }) {
  const { data: me } = useMe();
  const { theme, times, zone } = useSettings();
  return (
    <div className="layout-foot">
      <button type="button" onClick={() => change({ theme: themes[(themes.indexOf(theme) + 1) % themes.length] ?? "system" })}>
        {themeNames[theme]}
      </button>
      <button type="button" onClick={() => change({ times: times === "relative" ? "absolute" : "relative" })}>
        {times === "relative" ? "Relative times" : "Absolute times"}
      </button>
      <button
        type="button"
        onClick={() => change({ zone: zone === "utc" ? "local" : "utc" })}
        title="The zone of absolute times"
      >
        {zoneName(zone)}
      </button>
      <button type="button" className="layout-keys" onClick={onKeys}>
        Keys <kbd>?</kbd>
      </button>
      {me && (
        <p className="layout-me truncate" title={`May ${me.right}${me.read_only ? ", read only" : ""}`}>
          {me.subject || "This machine"}
          {me.tenant && ` · ${me.tenant}`}
          <span>{me.version}</span>
        </p>
      )}
    </div>
  );
}
