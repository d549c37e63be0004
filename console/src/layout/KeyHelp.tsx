import { Dialog } from "../components/Dialog";
import { useShortcuts } from "../lib/shortcuts";
import { Keys } from "./Palette";

/** KeyHelp lists the keys that work now. */
export function KeyHelp({ open, onClose }: { open: boolean; onClose: () => void }) {
  const shortcuts = useShortcuts();
  const groups = new Map<string, Map<string, string[]>>();
  for (const s of shortcuts) {
    const group = groups.get(s.group) ?? new Map<string, string[]>();
    const same = group.get(s.label) ?? [];
    if (!same.includes(s.keys)) group.set(s.label, [...same, s.keys]);
    groups.set(s.group, group);
  }
  return (
    <Dialog open={open} onClose={onClose} title="Keyboard shortcuts" wide>
      <div className="keys-list">
        {[...groups].map(([name, keys]) => (
          <section key={name}>
            <h3>{name}</h3>
            <dl>
              {[...keys].map(([label, all]) => (
                <div key={label}>
                  <dt>{label}</dt>
                  <dd className="keys-or">
                    {all.map((one) => (
                      <Keys key={one} keys={one} />
                    ))}
                  </dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
