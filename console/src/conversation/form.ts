// Forms for questions of agents: the flat subset of JSON Schema that the elicitation of MCP has.
import { LosslessNumber } from "../api/json";
import { isDict as isObject } from "./types";

export interface Option {
  value: string;
  title: string;
}

export interface Field {
  name: string;
  title: string;
  description?: string;
  required: boolean;
  type: "string" | "number" | "integer" | "boolean" | "choice" | "choices";
  format?: string;
  options?: Option[];
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  minItems?: number;
  maxItems?: number;
  initial: Value;
}

/** Value is what a person has put into a field: the text of numbers, too. */
export type Value = string | boolean | string[];
export type Values = Record<string, Value>;

export interface Form {
  title?: string;
  description?: string;
  fields: Field[];
}

/** Question is what a question of an agent offers besides an answer in words. */
export interface Question {
  form?: Form;
  /** choices are answers to choose from. */
  choices?: Option[];
  /** unusable says why a schema is no form. */
  unusable?: string;
}

/** Answer is a part of an answer. */
export type Answer = { kind: "text"; text: string } | { kind: "data"; data: unknown };

/** questionOf finds what the parts of a question offer. */
export function questionOf(parts: readonly { kind: string; text?: string; data?: unknown }[]): Question {
  for (const p of parts) {
    if (p.kind !== "data" || !isObject(p.data)) continue;
    const d = p.data;
    const schema = [d.requestedSchema, d.requested_schema, d.schema, d].find((s) => isObject(s) && isObject(s.properties));
    if (isObject(schema)) {
      try {
        return { form: formOf(schema) };
      } catch (error) {
        return { unusable: error instanceof Error ? error.message : String(error) };
      }
    }
    if (Array.isArray(d.options)) {
      const choices = d.options.map(optionOf);
      if (choices.length > 0 && choices.length <= 50 && choices.every((c) => c !== undefined))
        return { choices: choices as Option[] };
    }
  }
  return {};
}

/** approves returns the field of a form that asks for yes or no and nothing else. */
export function approves(form: Form): Field | undefined {
  const only = form.fields.length === 1 ? form.fields[0] : undefined;
  return only?.type === "boolean" ? only : undefined;
}

function optionOf(o: unknown): Option | undefined {
  if (typeof o === "string") return { value: o, title: o };
  if (!isObject(o)) return undefined;
  const value = o.value ?? o.const ?? o.id ?? o.title ?? o.label;
  const title = o.title ?? o.label ?? value;
  return typeof value === "string" ? { value, title: String(title) } : undefined;
}

const most = 100;

function formOf(schema: Record<string, unknown>): Form {
  const properties = schema.properties as Record<string, unknown>;
  const required = new Set(Array.isArray(schema.required) ? schema.required.map(String) : []);
  const names = Object.keys(properties);
  if (names.length > most) throw new Error(`the schema has more than ${most} members`);
  const form: Form = { fields: names.map((name) => fieldOf(name, properties[name], required.has(name))) };
  if (typeof schema.title === "string") form.title = schema.title;
  if (typeof schema.description === "string") form.description = schema.description;
  return form;
}

function fieldOf(name: string, schema: unknown, required: boolean): Field {
  if (!isObject(schema)) throw new Error(`${name} has no schema`);
  const field: Field = {
    name,
    title: typeof schema.title === "string" && schema.title ? schema.title : name,
    required,
    type: "string",
    initial: "",
  };
  if (typeof schema.description === "string") field.description = schema.description;
  const options = optionsOf(schema);
  if (options) {
    field.type = "choice";
    field.options = options;
    field.initial = typeof schema.default === "string" ? schema.default : "";
    return field;
  }
  switch (schema.type) {
    case "string":
      field.initial = typeof schema.default === "string" ? schema.default : "";
      if (typeof schema.format === "string") field.format = schema.format;
      if (typeof schema.pattern === "string") field.pattern = schema.pattern;
      limit(field, schema, "minLength", "maxLength");
      return field;
    case "number":
    case "integer":
      field.type = schema.type;
      field.initial = numberText(schema.default);
      limit(field, schema, "minimum", "maximum");
      return field;
    case "boolean":
      field.type = "boolean";
      field.initial = schema.default === true;
      return field;
    case "array": {
      const items = isObject(schema.items) ? optionsOf(schema.items) : undefined;
      if (!items) break;
      field.type = "choices";
      field.options = items;
      field.initial = Array.isArray(schema.default) ? schema.default.map(String) : [];
      limit(field, schema, "minItems", "maxItems");
      return field;
    }
  }
  throw new Error(
    `${name} is of the type ${String(schema.type ?? "none")}, and a form has text, numbers, yes or no, and choices`,
  );
}

type Limit = "minLength" | "maxLength" | "minimum" | "maximum" | "minItems" | "maxItems";

function limit(field: Field, schema: Record<string, unknown>, ...names: Limit[]): void {
  for (const name of names) {
    const v = schema[name];
    if (typeof v === "number") field[name] = v;
    else if (v instanceof LosslessNumber) field[name] = Number(v.value);
  }
}

function numberText(v: unknown): string {
  return v instanceof LosslessNumber ? v.value : typeof v === "number" ? String(v) : "";
}

function optionsOf(schema: Record<string, unknown>): Option[] | undefined {
  const titled = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(titled)) {
    const all = titled.map(optionOf);
    return all.length > 0 && all.every((o) => o !== undefined) ? (all as Option[]) : undefined;
  }
  if (!Array.isArray(schema.enum) || schema.enum.length === 0 || !schema.enum.every((v) => typeof v === "string"))
    return undefined;
  const names = Array.isArray(schema.enumNames) ? schema.enumNames : [];
  return schema.enum.map((value, i) => ({ value, title: typeof names[i] === "string" ? names[i] : value }));
}

/** initial returns the values with which a form begins. */
export function initial(form: Form): Values {
  return Object.fromEntries(form.fields.map((f) => [f.name, f.initial]));
}

const formats: Record<string, { test: (v: string) => boolean; says: string }> = {
  email: { test: (v) => /^[^\s@]+@[^\s@.]+(\.[^\s@.]+)*$/.test(v), says: "Write an address such as ada@example.com." },
  uri: { test: isUri, says: "Write a URI such as https://example.com/a." },
  date: { test: isDate, says: "Write a date such as 2026-05-03." },
  "date-time": { test: isDateTime, says: "Write a time with its zone, such as 2026-05-03T14:30:00Z." },
};

function isUri(v: string): boolean {
  try {
    new URL(v);
    return !/\s/.test(v);
  } catch {
    return false;
  }
}

function isDate(v: string): boolean {
  const m = /^(\d{4})-(\d{2})-(\d{2})$/.exec(v);
  if (!m) return false;
  const d = new Date(`${v}T00:00:00Z`);
  return !Number.isNaN(d.getTime()) && d.toISOString().startsWith(v);
}

function isDateTime(v: string): boolean {
  return /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})$/.test(v) && !Number.isNaN(Date.parse(v));
}

/** complaint says what is wrong with the value of a field, or "". */
export function complaint(f: Field, value: Value): string {
  if (f.type === "boolean") return "";
  if (f.type === "choices") {
    const n = (value as string[]).length;
    if (n === 0 && !f.required) return "";
    const least = Math.max(f.minItems ?? 0, f.required ? 1 : 0);
    if (n < least) return `Choose at least ${least}.`;
    if (f.maxItems !== undefined && n > f.maxItems) return `Choose at most ${f.maxItems}.`;
    return "";
  }
  const v = value as string;
  if (v === "") return f.required ? (f.type === "choice" ? "Choose one." : "This is needed.") : "";
  switch (f.type) {
    case "choice":
      return f.options?.some((o) => o.value === v) ? "" : "Choose one of the list.";
    case "integer":
      if (!/^-?\d+$/.test(v)) return "Write a whole number.";
      return bounds(f, v);
    case "number":
      if (!/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(v)) return "Write a number such as 12.5.";
      return bounds(f, v);
  }
  const length = [...v].length;
  if (f.minLength !== undefined && length < f.minLength) return `Write at least ${f.minLength} characters.`;
  if (f.maxLength !== undefined && length > f.maxLength) return `Write at most ${f.maxLength} characters.`;
  const format = f.format ? formats[f.format] : undefined;
  if (format && !format.test(v)) return format.says;
  return "";
}

function bounds(f: Field, v: string): string {
  const n = Number(v);
  if (f.minimum !== undefined && n < f.minimum) return `The least is ${f.minimum}.`;
  if (f.maximum !== undefined && n > f.maximum) return `The most is ${f.maximum}.`;
  return "";
}

/** answerOf returns the data of an answer. Fields that are empty and not needed are left out. */
export function answerOf(form: Form, values: Values): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const f of form.fields) {
    const v = values[f.name] ?? f.initial;
    if (f.type === "boolean") out[f.name] = v === true;
    else if (f.type === "choices") {
      if (f.required || (v as string[]).length > 0) out[f.name] = v;
    } else if (v !== "") {
      const digits = String(v).replace(/^(-?)0+(?=\d)/, "$1");
      out[f.name] = f.type === "number" || f.type === "integer" ? new LosslessNumber(digits) : v;
    }
  }
  return out;
}
