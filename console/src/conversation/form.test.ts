import { describe, expect, it } from "vitest";
import { formatJson, parseJson } from "../api/json";
import { answerOf, approves, complaint, type Form, initial, questionOf } from "./form";

const ask = (json: string) =>
  questionOf([
    { kind: "text", text: "?" },
    { kind: "data", data: parseJson(json) },
  ]);

const schema = `{"type":"object","title":"Trip","properties":{
  "name":{"type":"string","title":"Your name","minLength":2,"maxLength":5},
  "mail":{"type":"string","format":"email"},
  "site":{"type":"string","format":"uri"},
  "day":{"type":"string","format":"date","default":"2026-05-03"},
  "at":{"type":"string","format":"date-time"},
  "age":{"type":"integer","minimum":0,"maximum":150},
  "price":{"type":"number","default":1.50},
  "class":{"type":"string","enum":["e","b"],"enumNames":["Economy","Business"],"default":"e"},
  "seat":{"type":"string","oneOf":[{"const":"w","title":"Window"},{"const":"a","title":"Aisle"}]},
  "meals":{"type":"array","items":{"type":"string","enum":["fish","none"]},"maxItems":1},
  "sure":{"type":"boolean","default":true}},"required":["name","age"]}`;

function form(): Form {
  const f = ask(`{"requestedSchema":${schema}}`).form;
  if (!f) throw new Error("no form");
  return f;
}

describe("a schema in a question", () => {
  it("is a form, with titles, choices and defaults", () => {
    const f = form();
    expect(f.title).toBe("Trip");
    expect(f.fields.map((one) => [one.name, one.type, one.required, one.initial])).toEqual([
      ["name", "string", true, ""],
      ["mail", "string", false, ""],
      ["site", "string", false, ""],
      ["day", "string", false, "2026-05-03"],
      ["at", "string", false, ""],
      ["age", "integer", true, ""],
      ["price", "number", false, "1.50"],
      ["class", "choice", false, "e"],
      ["seat", "choice", false, ""],
      ["meals", "choices", false, []],
      ["sure", "boolean", false, true],
    ]);
    expect(f.fields[7]?.options).toEqual([
      { value: "e", title: "Economy" },
      { value: "b", title: "Business" },
    ]);
    expect(f.fields[8]?.options?.[0]).toEqual({ value: "w", title: "Window" });
    expect(ask(schema).form?.fields).toHaveLength(11);
    expect(ask(`{"schema":${schema}}`).form?.fields).toHaveLength(11);
  });

  it("that is not flat is none", () => {
    expect(ask('{"type":"object","properties":{"a":{"type":"object"}}}').unusable).toContain("a is of the type object");
    expect(ask('{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"}}}}').unusable).toContain("array");
    expect(ask('{"a":1}')).toEqual({});
    expect(questionOf([{ kind: "text", text: "?" }])).toEqual({});
  });

  it("with one yes or no asks for approval, and options are choices", () => {
    expect(approves(ask('{"type":"object","properties":{"ok":{"type":"boolean"}}}').form as Form)?.name).toBe("ok");
    expect(approves(form())).toBeUndefined();
    expect(ask('{"options":["DY 1303",{"id":"sk","label":"SK 4035"}]}').choices).toEqual([
      { value: "DY 1303", title: "DY 1303" },
      { value: "sk", title: "SK 4035" },
    ]);
  });

  it("with members that JavaScript keeps in its prototype is a form like others", () => {
    const f = ask(
      '{"type":"object","properties":{"__proto__":{"type":"string"},"constructor":{"type":"string"},"7":{"type":"string"}}}',
    ).form as Form;
    const values = Object.fromEntries(f.fields.map((one) => [one.name, "x"]));
    expect(formatJson(answerOf(f, values), 0)).toBe('{"__proto__":"x","constructor":"x","7":"x"}');
  });
});

describe("an answer", () => {
  const says = (name: string, value: string | string[]) => {
    const f = form().fields.find((one) => one.name === name);
    return f ? complaint(f, value) : "no field";
  };
  it("is checked", () => {
    for (const [name, value, complains] of [
      ["name", "", true],
      ["name", "a", true],
      ["name", "abcdef", true],
      ["name", "😀😀", false],
      ["mail", "", false],
      ["mail", "x", true],
      ["mail", "a@b.c", false],
      ["site", "a b", true],
      ["site", "https://e.com/x", false],
      ["day", "2026-02-30", true],
      ["day", "2026-02-28", false],
      ["at", "2026-05-03T14:30", true],
      ["at", "2026-05-03T14:30:00Z", false],
      ["age", "1.5", true],
      ["age", "-1", true],
      ["age", "151", true],
      ["age", "7", false],
      ["price", "1,5", true],
      ["price", "1e3", false],
      ["class", "z", true],
      ["meals", ["fish", "none"], true],
      ["meals", [], false],
    ] as [string, string | string[], boolean][])
      expect(says(name, value) !== "", `${name}=${value}: ${says(name, value)}`).toBe(complains);
  });

  it("has the digits that were written, and nothing that was left empty", () => {
    const f = form();
    const values = { ...initial(f), name: "Ada", age: "12345678901234567890", sure: false };
    expect(formatJson(answerOf(f, values), 0)).toBe(
      '{"name":"Ada","day":"2026-05-03","age":12345678901234567890,"price":1.50,"class":"e","sure":false}',
    );
  });
});
