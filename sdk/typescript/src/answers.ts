// Questions of durable runs: the form that asks them, and what an answer says to each.
import type { Json, JsonObject } from "./json.js";
import type { NewPart, Part, Speech } from "./types.js";

/** What checks and converts an answer, such as a schema of zod. */
export interface Parser<T> {
  parse(value: unknown): T;
}

/** A JSON schema, or anything with `parse`. */
export type Schema<T> = Parser<T> | JsonObject;

/** A question that waits for its answer. */
export interface Question {
  key: string;
  message: Speech | undefined;
  schema?: Schema<unknown>;
  /** Why the last answer did not fit. */
  problem?: string;
}

/** What an answer says to one question: a value, or why it does not fit. Neither: it says nothing. */
export interface Said {
  data?: Json;
  problem?: string;
}

/** What the server's approvals take as a yes: docs/agents/questions.md. */
const yes = /^\s*(yes|y|ok|okay|true|approve|approved|confirm|confirmed)[\s.!]*$/i;

const isParser = (schema: Schema<unknown>): schema is Parser<unknown> => typeof schema.parse === "function";

/** The JSON schema of a question, as far as it is known. */
function jsonSchema(schema: Schema<unknown> | undefined): JsonObject | undefined {
  if (schema === undefined || !isParser(schema)) return schema;
  const { toJSONSchema } = schema as { toJSONSchema?: () => JsonObject };
  return typeof toJSONSchema === "function" ? toJSONSchema.call(schema) : undefined;
}

/** One question with an object is its own form. All others have one property each, and so a wrapper. */
const bare = (all: readonly Question[]): boolean => {
  const schema = jsonSchema(all[0]?.schema);
  return all.length === 1 && (all[0]?.schema === undefined || schema === undefined || typeof schema.properties === "object");
};

/** One message for all questions. */
export function messageOf(all: readonly Question[]): Speech | undefined {
  const [first] = all;
  if (first && all.length === 1 && !first.schema && !first.problem) return first.message;
  const parts: NewPart[] = all.flatMap(({ message, problem }) => [
    ...(problem ? [{ text: `Please answer again: ${problem}` }] : []),
    ...(message === undefined ? [] : typeof message === "string" ? [{ text: message }] : message.parts),
  ]);
  const own = first && bare(all) ? jsonSchema(first.schema) : undefined;
  const properties = Object.fromEntries(
    all.map(({ key, message, schema }) => [
      key,
      { title: titleOf(message) || key, ...(jsonSchema(schema) ?? { type: "string" }) },
    ]),
  );
  const form = own ?? { type: "object", required: all.map((q) => q.key), properties };
  if (own || !bare(all)) parts.push({ data: { requestedSchema: form } });
  return { ...(typeof first?.message === "object" ? first.message : {}), parts };
}

/** What the message says to the question, as one of all that were asked. */
export function answerTo(question: Question, all: readonly Question[], parts: readonly Part[]): Said {
  const data = parts.find((p) => p.data !== undefined)?.data;
  const text = parts.flatMap((p) => p.text ?? []).join("\n");
  if (bare(all)) {
    if (!question.schema) return { data: { role: "user", parts } as unknown as Json };
    return checked(question.schema, data ?? ofText(jsonSchema(question.schema), text));
  }
  // The members of a form, or else a line for each question. Any other text answers the first; the others are asked again.
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  let said: Json | undefined;
  if (typeof data === "object" && data !== null && !Array.isArray(data)) said = data[question.key];
  else if (all.length === 1) said = data ?? ofText(jsonSchema(question.schema), text);
  else {
    const at = all.findIndex((q) => q.key === question.key);
    const line = lines.length === all.length ? lines[at] : at === 0 ? text : undefined;
    if (line !== undefined) said = ofText(jsonSchema(question.schema), line);
  }
  if (said === undefined) return {};
  if (question.schema) return checked(question.schema, said);
  return { data: { role: "user", parts: [typeof said === "string" ? { text: said } : { data: said }] } };
}

function checked(schema: Schema<unknown>, data: Json): Said {
  try {
    if (isParser(schema)) schema.parse(data);
    else {
      const problem = misfit(schema, data, "");
      if (problem) return { problem };
    }
    return { data };
  } catch (error) {
    const issues = (error as { issues?: { path?: unknown[]; message: string }[] }).issues;
    const said = issues?.map((i) => [i.path?.join("."), i.message].filter(Boolean).join(": ")).join("; ");
    return { problem: said || (error instanceof Error ? error.message : String(error)) };
  }
}

/** A text as the value that the schema asks for. */
function ofText(schema: JsonObject | undefined, text: string): Json {
  const properties = Object.entries((schema?.properties ?? {}) as { [name: string]: JsonObject });
  const [only] = properties;
  if (only && properties.length === 1) return { [only[0]]: ofText(only[1], text) };
  if (schema?.type === "boolean") return yes.test(text);
  if ((schema?.type === "number" || schema?.type === "integer") && /^\s*[-+]?[\d.]+\s*$/.test(text)) return Number(text);
  return text.trim();
}

/** The first problem of a value with the plain words of JSON schema: type, enum, const, required, properties, items. */
function misfit(schema: JsonObject, value: Json | undefined, at: string): string | undefined {
  const where = at || "the answer";
  const { type, required = [], properties = {}, items } = schema;
  const types = Array.isArray(type) ? type : type === undefined ? [] : [type];
  if (types.length > 0 && !types.some((t) => is(t as string, value))) return `${where} is not ${types.join(" or ")}`;
  const allowed = "const" in schema ? [schema.const as Json] : (schema.enum as Json[] | undefined);
  if (allowed && !allowed.includes(value as Json)) return `${where} is not ${allowed.join(" or ")}`;
  if (Array.isArray(value) && typeof items === "object") {
    for (const [i, item] of value.entries()) {
      const problem = misfit(items as JsonObject, item, `${where}[${i}]`);
      if (problem) return problem;
    }
  } else if (is("object", value)) {
    const object = value as JsonObject;
    for (const name of required as string[]) if (object[name] === undefined) return `${name} is missing`;
    for (const [name, of] of Object.entries(properties as { [name: string]: JsonObject })) {
      const problem = object[name] === undefined ? undefined : misfit(of, object[name], name);
      if (problem) return problem;
    }
  }
  return undefined;
}

function is(type: string, value: Json | undefined): boolean {
  if (type === "integer") return Number.isInteger(value) || typeof value === "bigint";
  if (type === "number") return typeof value === "number" || typeof value === "bigint";
  if (type === "array") return Array.isArray(value);
  if (type === "null") return value === null;
  if (type === "object") return typeof value === "object" && value !== null && !Array.isArray(value);
  return typeof value === type;
}

const titleOf = (message: Speech | undefined): string =>
  typeof message === "string" ? message : (message?.parts ?? []).flatMap((p) => ("text" in p ? p.text : [])).join(" ");
