import { Dialog } from "../components/Dialog";
import { useShortcuts } from "../lib/shortcuts";
import { Keys } from "./Palette";

/** KeyHelp lists the keys that work now. */
export function KeyHelp({ open, onClose }: { open: boolean; onClose: () => void }) {
  const shortcuts = useShortcuts();
  const groups = new Map<string, Map<string, string>>();
  for (const s of shortcuts) {
    const group = groups.get(s.group) ?? new Map<string, string>();
    group.set(s.keys, s.label);
    groups.set(s.group, group);
  }
  return (
    <Dialog open={open} onClose={onClose} title="Keyboard shortcuts" wide>
      <div className="keys-list">
        {[...groups].map(([name, keys]) => (
          <section key={name}>
            <h3>{name}</h3>
            <dl>
              {[...keys].map(([one, label]) => (
                <div key={one}>
                  <dt>{label}</dt>
                  <dd>
                    <Keys keys={one} />
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
