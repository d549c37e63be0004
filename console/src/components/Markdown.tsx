import { Component, type ComponentProps, type ReactNode, useMemo } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { hostOf, visible } from "../lib/text";
import { Scroll } from "./Scroll";
import "./Markdown.css";

/** most bounds the text that is parsed, in characters. */
const most = 60_000;
/** deepest bounds the nesting that is parsed: a deeper one is no document but an attack on the stack. */
const deepest = 40;

const plugins = [remarkGfm];

/**
 * Markdown shows the Markdown of an agent. It becomes React elements and never HTML, so nothing of it runs: HTML in it is text. A
 * link shows the host that it leads to, and an image is not loaded but is a link, too.
 */
export function Markdown({ text }: { text: string }) {
  const shown = useMemo(() => visible(text), [text]);
  if (text.length > most || nests(text)) return <Plain text={shown} />;
  return (
    <Guard key={shown} fallback={<Plain text={shown} />}>
      <div className="markdown">
        <ReactMarkdown remarkPlugins={plugins} components={components} urlTransform={addresses}>
          {shown}
        </ReactMarkdown>
      </div>
    </Guard>
  );
}

function Plain({ text }: { text: string }) {
  return (
    <pre className="markdown-plain" dir="auto">
      {text}
    </pre>
  );
}

/** nests says whether a line begins with so many quotes and lists, or has so many brackets, that parsing it is not worth it. */
function nests(text: string): boolean {
  for (const line of text.split("\n")) {
    let depth = 0;
    let spaces = 0;
    for (const c of line) {
      if (c === " " || c === "\t") {
        if (++spaces > 4 * deepest) return true;
      } else if (c === ">" || c === "-" || c === "*" || c === "+" || c === "[" || c === "_") {
        // A rule or a line of a table is long, but not nested.
        if (++depth > deepest && !/^[-*_=+|: \t]*$/.test(line)) return true;
      } else break;
    }
    if (line.length > 2000 && (line.match(/[[*_]/g)?.length ?? 0) > 1000) return true;
  }
  return false;
}

/** addresses drops addresses that a browser must not open. */
function addresses(address: string): string {
  return hostOf(address) ? address : "";
}

/** block is an element whose direction is that of its text. */
function block(Tag: "p" | "li" | "blockquote" | "th" | "td", className?: string) {
  return ({ children }: { children?: ReactNode }) => (
    <Tag className={className} dir="auto">
      {children}
    </Tag>
  );
}

const components: Components = {
  a: ({ href, children }) => <Outward href={href}>{children}</Outward>,
  img: ({ src, alt }) => <BlockedImage src={typeof src === "string" ? src : undefined} alt={alt} />,
  // Headings of an agent are no part of the outline of the page.
  h1: block("p", "markdown-title"),
  h2: block("p", "markdown-title"),
  h3: block("p", "markdown-heading"),
  h4: block("p", "markdown-heading"),
  h5: block("p", "markdown-heading"),
  h6: block("p", "markdown-heading"),
  p: block("p"),
  li: block("li"),
  blockquote: block("blockquote"),
  table: ({ children }) => (
    <Scroll className="markdown-table" label="Table">
      <table>{children}</table>
    </Scroll>
  ),
  th: block("th"),
  td: block("td"),
  pre: ({ children }) => (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it
    <pre tabIndex={0}>{children}</pre>
  ),
  code: ({ children }) => <code>{children}</code>,
  input: ({ checked }) => <input type="checkbox" checked={checked ?? false} disabled aria-label={checked ? "done" : "to do"} />,
};

/** Outward is a link to another site. It says which, and tells that site nothing. */
export function Outward({ href, children, title }: { href: string | undefined; children: ReactNode; title?: string }) {
  const host = hostOf(href);
  if (!host) return <span title="This address is not one that a browser opens">{children}</span>;
  const said = typeof children === "string" && (children === href || children === host);
  return (
    <a className="outward" href={href} target="_blank" rel="noopener noreferrer nofollow" title={title ?? visible(href ?? "")}>
      {children}
      {!said && <span className="outward-host">{visible(host)}</span>}
    </a>
  );
}

/** BlockedImage stands for an image of another site. Its address gets a request only when the reader opens it. */
export function BlockedImage({ src, alt }: { src: string | undefined; alt: string | undefined }) {
  const host = hostOf(src);
  const name = visible(alt || "image");
  if (!host) return <span className="blocked-image">{name} (its address is no web address)</span>;
  return (
    <Outward href={src} title={`Not loaded. Open ${visible(src ?? "")}`}>
      <span className="blocked-image">Image not loaded: {name}</span>
    </Outward>
  );
}

/** Guard shows a fallback for content that cannot be rendered. */
class Guard extends Component<ComponentProps<"div"> & { fallback: ReactNode }, { failed: boolean }> {
  override state = { failed: false };
  static getDerivedStateFromError() {
    return { failed: true };
  }
  override render() {
    return this.state.failed ? this.props.fallback : this.props.children;
  }
}
