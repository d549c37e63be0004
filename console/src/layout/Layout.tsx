import { Link, Outlet, useRouter } from "@tanstack/react-router";
import { Suspense, useCallback, useRef, useState } from "react";
import { ApiError } from "../api/client";
import { useSilence } from "../api/reach";
import type { Me } from "../api/schema";
import { Tag } from "../components/Badge";
import { Button } from "../components/Button";
import { ErrorBox } from "../components/ErrorBox";
import { Menu } from "../components/Menu";
import { Toasts } from "../components/Toast";
import { useInbox } from "../lib/inbox";
import { change, type Settings, settings, useSettings } from "../lib/settings";
import { useShortcut } from "../lib/shortcuts";
import { absolute, zoneName } from "../lib/time";
import { KeyHelp } from "./KeyHelp";
import { later } from "./later";
import { useMe } from "./me";
import { may, pages } from "./nav";
import { Palette } from "./Palette";
import { Who } from "./Who";
import "./Layout.css";
import "./Login.css";

const Login = later(() => import("./Login").then((file) => file.Login));

/** Layout is what all pages have: the navigation, the palette, the list of keys, the toasts. */
export function Layout() {
  const { data: me, error } = useMe();
  const [open, setOpen] = useState(false);
  const [keys, setKeys] = useState(false);
  const showKeys = useCallback(() => setKeys(true), []);
  useShortcut("?", "Keyboard shortcuts", "Everywhere", showKeys);
  const [issuerLogout, setIssuerLogout] = useState<string>();
  if (error instanceof ApiError && error.problem.status === 401) {
    // The error keeps who the operator was.
    const why = issuerLogout !== undefined ? "left" : me ? "ended" : "new";
    return (
      <Suspense fallback={<Begin />}>
        <Login ways={error.problem.login} why={why} issuerLogout={issuerLogout ?? ""} />
      </Suspense>
    );
  }
  if (!me) return error instanceof ApiError && error.problem.status !== 0 ? <Refused error={error} /> : <Begin />;
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
                  activeOptions={{ exact: page.to === "/" }}
                  activeProps={{ "aria-current": "page" }}
                  onClick={() => setOpen(false)}
                >
                  <svg viewBox="0 0 16 16" aria-hidden="true">
                    <path d={page.icon} />
                  </svg>
                  {page.name}
                  {page.to === "/inbox" && <Waiting />}
                </Link>
              )}
            </li>
          ))}
        </ul>
        <Foot onKeys={showKeys} me={me} onLogout={setIssuerLogout} />
      </nav>
      <div className="layout-page">
        <Bar version={me.version} />
        <Outlet />
      </div>
      <Palette onKeys={showKeys} />
      <KeyHelp open={keys} onClose={() => setKeys(false)} />
      <Toasts />
    </div>
  );
}

/** Begin is what shows before the server has said who the operator is; the same as in index.html. */
function Begin() {
  return (
    <div className="begin-shell">
      <Bar />
      <p role="status">Loading…</p>
    </div>
  );
}

/** Refused is for an operator whose credential is known and is not enough, or whom the server cannot check now. */
function Refused({ error }: { error: ApiError }) {
  return (
    <main className="login">
      <div className="login-card">
        <h1>Holdfast</h1>
        <ErrorBox error={error} retry={() => window.location.reload()} />
      </div>
    </main>
  );
}

/** Bar says that the server does not answer, so that no page looks alive that is not, or that it is no longer the one that the page came from. */
function Bar({ version }: { version?: string }) {
  const since = useSilence();
  const first = useRef(version);
  first.current ??= version;
  return (
    <div className="bar" role="status" data-away={since ? true : undefined}>
      {since ? (
        <>
          <span className="bar-dot" aria-hidden="true" />
          No answer from the server since {absolute(since, settings().zone)}. Trying again.
        </>
      ) : (
        version !== first.current && (
          <>
            The server has changed from {first.current} to {version}.
            <Button onClick={() => window.location.reload()}>Reload the page</Button>
          </>
        )
      )}
    </div>
  );
}

/** Waiting counts the questions of the inbox. */
function Waiting() {
  const { data } = useInbox();
  const n = data?.tasks.length ?? 0;
  return n > 0 ? (
    <span className="layout-count" title="Tasks that wait for people">
      <Tag tone="warn">
        {n}
        {data?.next && "+"}
      </Tag>
    </span>
  ) : null;
}

function GoTo({ page }: { page: (typeof pages)[number] }) {
  const router = useRouter();
  useShortcut(`g ${page.key}`, page.name, "Go to", () => router.navigate({ to: page.to }));
  return null;
}

const choices: [name: string, choice: Partial<Settings>][] = [
  ["Theme of the system", { theme: "system" }],
  ["Light theme", { theme: "light" }],
  ["Dark theme", { theme: "dark" }],
  ["Relative times", { times: "relative" }],
  ["Absolute times", { times: "absolute" }],
  ["Local time", { zone: "local" }],
  ["UTC", { zone: "utc" }],
];

interface FootProps {
  onKeys: () => void;
  me: Me;
  onLogout: (issuer: string) => void;
}

/** Foot has the settings, and who the operator is. */
function Foot({ onKeys, me, onLogout }: FootProps) {
  const now: Settings = useSettings();
  const chosen = (choice: Partial<Settings>) =>
    Object.entries(choice).every(([name, value]) => now[name as keyof Settings] === value);
  return (
    <div className="layout-foot">
      <Menu
        kind="ghost"
        items={choices.map(([name, choice]) => ({
          name: `${chosen(choice) ? "✓" : "\u2003"} ${name}${choice.zone === "local" ? ` (${zoneName("local")})` : ""}`,
          run: () => change(choice),
        }))}
      >
        Settings
      </Menu>
      <button type="button" className="layout-keys" onClick={onKeys}>
        Shortcuts <kbd>?</kbd>
      </button>
      <div className="layout-who">
        <Who me={me} onLogout={onLogout} />
      </div>
    </div>
  );
}
