/** The fields of a line. */
export type Fields = { [name: string]: string | number | boolean | undefined };

/** Where a worker logs. */
export interface Logger {
  debug(message: string, fields?: Fields): void;
  info(message: string, fields?: Fields): void;
  warn(message: string, fields?: Fields): void;
  error(message: string, fields?: Fields): void;
}

const levels = ["debug", "info", "warn", "error"] as const;

/** A level of lines. */
export type Level = (typeof levels)[number];

/** Logs to stderr, a line each: time=… level=INFO msg="…" task_id=…, as the server does. Lines below the level are dropped. */
export function textLogger(
  level: Level = "info",
  write: (line: string) => void = (line) => process.stderr.write(line),
): Logger {
  const at =
    (of: Level) =>
    (message: string, fields: Fields = {}) => {
      if (levels.indexOf(of) < levels.indexOf(level)) return;
      let line = `time=${new Date().toISOString()} level=${of.toUpperCase()} msg=${quoted(message)}`;
      for (const [name, value] of Object.entries(fields)) {
        if (value !== undefined) line += ` ${name}=${quoted(String(value))}`;
      }
      write(`${line}\n`);
    };
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}

const quoted = (value: string) => (/^[^\s"=\p{C}]+$/u.test(value) ? value : JSON.stringify(value));

/** A logger that adds fields to each line. */
export function withFields(log: Logger, fields: Fields): Logger {
  const at = (of: Level) => (message: string, more?: Fields) => log[of](message, { ...fields, ...more });
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}

/** What to log of an error: its text, and its causes. */
export function describe(error: unknown): string {
  const said: string[] = [];
  for (let e = error; e !== undefined && e !== null && said.length < 5; e = e instanceof Error ? e.cause : undefined) {
    const text = e instanceof Error ? e.message || codeOf(e) || e.name : String(e);
    said.push(text);
  }
  return said.join(": ");
}

const codeOf = (e: Error) => ("code" in e && typeof e.code === "string" ? e.code : "");
