import type { ComponentProps } from "react";
import "./Button.css";

export interface ButtonProps extends ComponentProps<"button"> {
  kind?: "plain" | "primary" | "danger" | "ghost";
  busy?: boolean;
}

/** Button is a button. A busy one cannot be pressed again. */
export function Button({ kind = "plain", busy, className = "", disabled, children, ...rest }: ButtonProps) {
  return (
    <button
      type="button"
      className={`button button-${kind} ${className}`}
      disabled={disabled || busy}
      aria-busy={busy || undefined}
      {...rest}
    >
      {busy && <span className="button-spinner" aria-hidden="true" />}
      {children}
    </button>
  );
}
