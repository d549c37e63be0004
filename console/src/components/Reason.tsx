import { useId } from "react";
import { useMe } from "../layout/me";

/** Reason is the field for why an operator acts. A server that asks for credentials needs one. */
export function Reason({ value, onChange, focus }: { value: string; onChange: (reason: string) => void; focus?: boolean }) {
  const id = useId();
  const { data: me } = useMe();
  const needed = me?.reason_needed ?? true;
  return (
    <div className="dialog-field">
      <label htmlFor={id}>{needed ? "Reason" : "Reason (optional)"}</label>
      <input
        id={id}
        className="input"
        value={value}
        onChange={(event) => onChange(event.target.value)}
        placeholder="why, such as ticket 7"
        maxLength={1000}
        required={needed}
        pattern={needed ? ".*\\S.*" : undefined}
        title={needed ? "Say why you act" : undefined}
        aria-describedby={`${id}-about`}
        autoComplete="off"
        data-autofocus={focus || undefined}
      />
      <span id={`${id}-about`} className="muted">
        The audit log keeps it{needed ? ", with your name" : ""}.
      </span>
    </div>
  );
}
