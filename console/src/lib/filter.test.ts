import { expect, describe as group, test } from "vitest";
import {
  describe,
  format,
  fromJob,
  fromSearch,
  parse,
  type TaskFilter,
  toggle,
  toJob,
  toQuery,
  toSearch,
  toTime,
  within,
  without,
} from "./filter";
import { parseSearch, stringifySearch } from "./search";

const now = Date.parse("2026-11-26T12:00:00Z");
const typed = (text: string) => {
  const filter = parse([], text, now);
  return typeof filter === "string" ? filter : filter.map(format).join(" ");
};

group("the filter of tasks", () => {
  test("survives an address", () => {
    const address =
      "?state=failed&state=rejected&agent=we+ather&-agent=pay&owner=&-owner=bot&since=2h&duration=%3E30s&tokens=%3E10k&has=retry&metadata=ticket:T-9&text=a+b&reason=";
    const filter = fromSearch(parseSearch(address));
    expect(describe(filter)).toBe(
      "state failed, rejected · agent we ather · not agent pay · owner (none) · not owner bot · since 2h · duration >30s · tokens >10k · has retry · metadata ticket:T-9 · text a b · reason (none)",
    );
    expect(stringifySearch(toSearch(filter))).toBe(address);
    expect(fromSearch(parseSearch("?id=a%26b&state=failed"))).toEqual([{ key: "id", value: "a&b" }]);
  });

  test("has an order, which is of the list alone", () => {
    const filter = fromSearch(parseSearch("?agent=a&order=oldest"));
    expect(stringifySearch(toSearch(filter))).toBe("?agent=a&order=oldest");
    expect(toJob(filter, now)).toEqual({ agent: ["a"] });
    expect(stringifySearch(toSearch(toggle(filter, "oldest", "order")))).toBe("?agent=a");
    expect(typed("order:newest")).toContain("is no order");
  });

  test("ignores what it does not know", () => {
    expect(fromSearch(parseSearch("?state=lost&agent=&x=1&-since=2h&since=soon"))).toEqual([]);
  });

  test("is what people type", () => {
    expect(typed('state:failed agent:weather -owner:bot text:"no such host" duration:>30s has:retry')).toBe(
      'state:failed agent:weather -owner:bot duration:>30s has:retry text:"no such host"',
    );
    expect(typed('metadata.ticket:T-9 metadata.a-b:"x y" metadata.ticket:T-1 tokens:>10k tokens:<2M tokens:>5')).toBe(
      'tokens:<2M tokens:>5 metadata.a-b:"x y" metadata.ticket:T-1',
    );
    expect(typed("refund policy")).toBe('text:"refund policy"');
    expect(typed('state:"input required" agent:a,b -state:working')).toBe(
      "state:input-required -state:working agent:a agent:b",
    );
    expect(typed('agent:"a,b" owner: tenant:""')).toBe('agent:"a,b" tenant:"" owner:""');
    expect(typed("since:1d since:2h duration:>1s duration:<1h30m duration:>2s")).toBe("since:2h duration:<1h30m duration:>2s");
    expect(typed("state:failed -state:failed")).toBe("-state:failed");
    expect(typed("see https://x.example/a:b")).toBe('text:"see https://x.example/a:b"');
    expect(typed("state:failed 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f")).toBe("id:0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f");
    expect(typed("id:urn:task:7")).toBe("id:urn:task:7");
    expect(parse([{ key: "id", value: "x" }], "agent:demo", now)).toEqual([{ key: "agent", value: "demo" }]);
  });

  test("says what is wrong, and what to write", () => {
    expect(typed("colour:red state:failed")).toMatch(/^“colour” is no key. The keys are state, agent, .*text:"colour:red"/);
    expect(typed("tokens:10k")).toMatch(/“10k” is no bound of tokens/);
    expect(typed("metadata:T-9")).toMatch(/metadata.ticket:T-9/);
    expect(typed("tokens:>1 words")).toMatch(/cannot be combined with text/);
    expect(typed("state:lost")).toMatch(/“lost” is no state. The states are working/);
    expect(typed("since:soon")).toMatch(/is no time/);
    expect(typed("agent:")).toMatch(/Give a value: agent/);
    expect(typed('text:""')).toMatch(/Give a value/);
    expect(typed("-since:2h")).toMatch(/cannot be left out/);
    expect(typed("duration:30s")).toMatch(/Write duration:>30s/);
    expect(typed("has:tea")).toMatch(/has:retry/);
  });

  test("reads times", () => {
    expect(toTime("2h", now)).toBe("2026-11-26T10:00:00.000Z");
    expect(toTime("2026-11-01T00:00Z", now)).toBe("2026-11-01T00:00:00.000Z");
    expect(toTime("2", now)).toBeUndefined();
  });

  test("becomes the filter of requests and jobs, and back", () => {
    const filter = parse([], "state:failed since:1d duration:>1m30s -has:retry -agent:a,b", now) as TaskFilter;
    expect(toQuery(filter, now)).toMatchObject({
      state: ["failed"],
      "-agent": ["a", "b"],
      since: "2026-11-25T12:00:00.000Z",
      min_duration: "90s",
      retried: false,
    });
    const job = toJob(filter, now);
    expect(job).toEqual({
      state: ["failed"],
      "-agent": ["a", "b"],
      since: ["2026-11-25T12:00:00.000Z"],
      min_duration: ["90s"],
      retried: ["false"],
    });
    expect(describe(fromSearch(fromJob(job)))).toBe(
      "state failed · not agent a, b · since 2026-11-25T12:00:00.000Z · duration >90s · not has retry",
    );
    expect(toJob([], now)).toEqual({ until: ["2026-11-26T12:00:00.000Z"] });
  });

  test("can be changed in part", () => {
    const filter = parse([], 'state:failed,rejected owner:""', now) as TaskFilter;
    expect(describe([])).toBe("all tasks");
    expect(describe(toggle(filter, "failed"))).toBe("state rejected · owner (none)");
    expect(describe(toggle(filter, "working"))).toBe("state working, failed, rejected · owner (none)");
    expect(describe(without(filter, "owner"))).toBe("state failed, rejected");
    expect(describe(within(within([], "a", "b"), "c", "d"))).toBe("since c · until d");
  });
});
