import { Tabs as Base } from "@base-ui/react/tabs";
import type { ReactNode } from "react";
import "./Tabs.css";

export interface Tab {
  id: string;
  name: ReactNode;
  content: ReactNode;
}

/** Tabs show one of several panels. Keep the value in the address, so that links lead to a tab. */
export function Tabs({
  tabs,
  value,
  onChange,
  label,
}: {
  tabs: Tab[];
  value: string;
  onChange: (id: string) => void;
  label: string;
}) {
  return (
    <Base.Root className="tabs" value={value} onValueChange={(next) => onChange(String(next))}>
      <Base.List className="tabs-list" aria-label={label}>
        {tabs.map((tab) => (
          <Base.Tab key={tab.id} value={tab.id} className="tabs-tab">
            {tab.name}
          </Base.Tab>
        ))}
      </Base.List>
      {tabs.map((tab) => (
        <Base.Panel key={tab.id} value={tab.id} className="tabs-panel">
          {tab.content}
        </Base.Panel>
      ))}
    </Base.Root>
  );
}
