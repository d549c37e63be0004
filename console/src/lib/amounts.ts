// Amounts as people read them.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** count returns "12,345". */
export function count(n: number): string {
  return whole.format(n);
}

/** short returns "950", "1.2k" or "34M". */
export function short(n: number): string {
  const at = n < 1000 ? 0 : n < 999_500 ? 1 : n < 999_500_000 ? 2 : 3;
  const scaled = n / 1000 ** at;
  return `${at === 0 ? n : scaled < 99.5 ? Number(scaled.toPrecision(2)) : Math.round(scaled)}${["", "k", "M", "G"][at]}`;
}

/** upTo returns a number that was counted up to a bound: "10,000+". */
export function upTo(n: number, bound: number): string {
  return n >= bound ? `${count(bound)}+` : count(n);
}

/** plural returns "1 task" or "12 tasks". */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** rate returns "4.2/min", or "18/h" if it is slow. */
export function rate(n: number, seconds: number): string {
  if (n === 0 || seconds <= 0) return "0/min";
  const minute = (n / seconds) * 60;
  if (minute >= 1) return `${minute >= 99.5 ? count(minute) : Number(minute.toPrecision(2))}/min`;
  const hour = minute * 60;
  return hour >= 1 ? `${Number(hour.toPrecision(2))}/h` : `${Number((hour * 24).toPrecision(2))}/day`;
}

/** percent returns "4.2%", "<0.1%" or "0%". */
export function percent(part: number, of: number): string {
  if (of <= 0 || part <= 0) return "0%";
  const p = (part / of) * 100;
  return p < 0.1 ? "<0.1%" : `${p >= 9.95 ? Math.round(p) : Number(p.toFixed(1))}%`;
}

/** money returns a cost with three digits, such as "0.0042 USD". */
export function money(n: number, currency = ""): string {
  return `${n.toLocaleString("en-US", { maximumSignificantDigits: 3 })} ${currency}`.trim();
}

/** days returns a span of days as "5 h", "12 days" or "3 years". */
export function days(n: number): string {
  if (n < 1) return `${Math.max(1, Math.round(n * 24))} h`;
  if (n < 60) return plural(Math.round(n), "day");
  if (n < 730) return `${Math.round(n / 30.4)} months`;
  return n < 36_500 ? `${Math.round(n / 365)} years` : "more than 100 years";
}
