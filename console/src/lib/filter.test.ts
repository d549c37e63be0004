import { expect, describe as group, test } from "vitest";
import { add, describe, fromSearch, isEmpty, type TaskFilter, toJob, toQuery, toSearch, toTime, without } from "./filter";
import { parseSearch, stringifySearch } from "./search";

const now = Date.parse("2026-11-26T12:00:00Z");
const none: TaskFilter = { state: [] };

group("the filter of tasks", () => {
  test("survives an address", () => {
    const address = "?state=failed&state=rejected&agent=we+ather&owner=&since=2h&text=a+%22b&reason=&id=a%26b";
    const filter = fromSearch(parseSearch(address));
    expect(filter).toEqual({
      state: ["failed", "rejected"],
      agent: "we ather",
      owner: "",
      since: "2h",
      text: 'a "b',
      reason: "",
      id: "a&b",
    });
    expect(stringifySearch(toSearch(filter))).toBe(address);
  });

  test("ignores what it does not know", () => {
    expect(fromSearch(parseSearch("?state=lost&agent=&x=1"))).toEqual(none);
    expect(isEmpty(none)).toBe(true);
  });

  test("takes fields and ids from text", () => {
    expect(add(none, "agent: demo", now)).toEqual({ state: [], agent: "demo" });
    expect(add(none, "state:Input required", now)).toEqual({ state: ["input-required"] });
    expect(add(none, "urn:task:7", now)).toEqual({ state: [], id: "urn:task:7" });
    expect(add({ state: ["failed"], agent: "demo" }, "urn:task:7", now)).toEqual({ state: [], id: "urn:task:7" });
    expect(add({ state: [], id: "urn:task:7" }, "agent:demo", now)).toEqual({ state: [], agent: "demo" });
    expect(add({ state: ["failed"] }, 'text:"no such host"', now)).toEqual({ state: ["failed"], text: "no such host" });
    expect(add(none, 'text: 5 o"clock', now)).toEqual({ state: [], text: '5 o"clock' });
    expect(add(none, 'reason:"no seat: 12"', now)).toEqual({ state: [], reason: "no seat: 12" });
    expect(add(none, 'text:""', now)).toMatch(/Give a value/);
    expect(add(none, "state:lost", now)).toMatch(/is no state/);
    expect(add(none, "since:soon", now)).toMatch(/is no time/);
    expect(add(none, "agent:", now)).toMatch(/Give a value/);
    expect(add(none, "tenant:", now)).toEqual({ state: [], tenant: "" });
  });

  test("reads times", () => {
    expect(toTime("2h", now)).toBe("2026-11-26T10:00:00.000Z");
    expect(toTime("2026-11-01T00:00Z", now)).toBe("2026-11-01T00:00:00.000Z");
    expect(toTime("2", now)).toBeUndefined();
  });

  test("becomes the filter of requests and jobs", () => {
    expect(toQuery({ state: ["failed"], since: "1d" }, now)).toMatchObject({
      state: ["failed"],
      since: "2026-11-25T12:00:00.000Z",
    });
    expect(toJob({ state: ["failed"], tenant: "" }, now)).toEqual({ states: ["failed"], tenant: "" });
    expect(toJob(none, now)).toEqual({ until: "2026-11-26T12:00:00.000Z" });
  });

  test("can be described and reduced", () => {
    const filter: TaskFilter = { state: ["failed", "rejected"], owner: "" };
    expect(describe(filter)).toBe("state failed, rejected · owner (none)");
    expect(describe(none)).toBe("all tasks");
    expect(without(filter, "state", "failed")).toEqual({ state: ["rejected"], owner: "" });
    expect(without(filter, "owner")).toEqual({ state: ["failed", "rejected"] });
  });
});
