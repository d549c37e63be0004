import { Toast as Base } from "@base-ui/react/toast";
import type { ReactNode } from "react";
import "./Toast.css";

const toasts = Base.createToastManager();

/** toast tells the result of an action for a few seconds. Errors belong into an ErrorBox at their place. */
export function toast(title: string, description?: ReactNode): void {
  toasts.add({ title, description });
}

/** Toasts shows them. The layout has it once. */
export function Toasts() {
  return (
    <Base.Provider toastManager={toasts} timeout={6000}>
      <Base.Portal>
        <Base.Viewport className="toasts">
          <List />
        </Base.Viewport>
      </Base.Portal>
    </Base.Provider>
  );
}

function List() {
  const { toasts: shown } = Base.useToastManager();
  return shown.map((one) => (
    <Base.Root key={one.id} toast={one} className="toast">
      <Base.Title className="toast-title" />
      <Base.Description className="toast-text" />
      <Base.Close className="toast-close" aria-label="Close">
        ×
      </Base.Close>
    </Base.Root>
  ));
}
