import { type ReactNode, useState } from "react";
import { Button } from "./Button";
import { Dialog } from "./Dialog";
import { ErrorBox } from "./ErrorBox";
import { Reason } from "./Reason";

/** Confirm asks why before it acts. The reason goes into the audit log. */
export function Confirm({
  open,
  onClose,
  title,
  children,
  verb,
  danger,
  ready = true,
  act,
}: {
  open: boolean;
  onClose: () => void;
  title: string;
  /** children say what will happen, and hold further fields. */
  children?: ReactNode;
  /** verb is on the button. */
  verb: string;
  danger?: boolean;
  /** ready is false while a further field lacks a value. */
  ready?: boolean;
  /** act does it. Its error stays in the dialog. */
  act: (reason: string) => Promise<unknown>;
}) {
  return (
    <Dialog open={open} onClose={onClose} title={title}>
      <Form onClose={onClose} verb={verb} danger={danger} ready={ready} act={act}>
        {children}
      </Form>
    </Dialog>
  );
}

function Form({
  onClose,
  children,
  verb,
  danger,
  ready,
  act,
}: {
  onClose: () => void;
  children?: ReactNode;
  verb: string;
  danger?: boolean;
  ready: boolean;
  act: (reason: string) => Promise<unknown>;
}) {
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  return (
    <form
      className="dialog-form"
      onSubmit={(event) => {
        event.preventDefault();
        setBusy(true);
        setError(undefined);
        act(reason.trim()).then(onClose, (failed: unknown) => {
          setError(failed);
          setBusy(false);
        });
      }}
    >
      {children}
      <Reason value={reason} onChange={setReason} focus />
      {error !== undefined && <ErrorBox error={error} />}
      <div className="dialog-buttons">
        <Button onClick={onClose}>Back</Button>
        <Button type="submit" kind={danger ? "danger" : "primary"} busy={busy} disabled={!ready}>
          {verb}
        </Button>
      </div>
    </form>
  );
}
