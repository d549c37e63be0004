import { Dialog as Base } from "@base-ui/react/dialog";
import type { ReactNode } from "react";
import "./Dialog.css";

/** Dialog is a modal dialog with a title. It closes on Escape and on a press outside. */
export function Dialog({
  open,
  onClose,
  title,
  children,
  wide,
}: {
  open: boolean;
  onClose: () => void;
  title: string;
  children: ReactNode;
  wide?: boolean;
}) {
  return (
    <Base.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Base.Portal>
        <Base.Backdrop className="dialog-backdrop" />
        <Base.Popup className={wide ? "dialog dialog-wide" : "dialog"}>
          <Base.Title className="dialog-title">{title}</Base.Title>
          {children}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}
