import { Menu as Base } from "@base-ui/react/menu";
import type { ReactNode } from "react";
import "./Menu.css";

export interface MenuItem {
  name: ReactNode;
  run: () => void;
  danger?: boolean;
  disabled?: boolean;
}

/** Menu is a button that opens a list of actions. */
export function Menu({
  label,
  children,
  items,
  kind = "plain",
}: {
  /** label is the name of the button, if its content is no text. */
  label?: string;
  children: ReactNode;
  items: MenuItem[];
  kind?: "plain" | "ghost";
}) {
  return (
    <Base.Root>
      <Base.Trigger className={`button button-${kind}`} aria-label={label}>
        {children}
        <svg className="menu-arrow" viewBox="0 0 10 6" aria-hidden="true">
          <path d="m1 1 4 4 4-4" />
        </svg>
      </Base.Trigger>
      <Base.Portal>
        <Base.Positioner className="menu-positioner" sideOffset={4} align="end">
          <Base.Popup className="menu">
            {items.map((item, i) => (
              <Base.Item
                // biome-ignore lint/suspicious/noArrayIndexKey: the items of a menu do not move
                key={i}
                className={item.danger ? "menu-item menu-danger" : "menu-item"}
                disabled={item.disabled}
                onClick={item.run}
              >
                {item.name}
              </Base.Item>
            ))}
          </Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}
