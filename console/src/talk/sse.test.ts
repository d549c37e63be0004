import { expect, it } from "vitest";
import { sseReader } from "./sse";

const stream =
  ': keep-alive\n\nid: 1-a\ndata: {"a":\ndata: 1}\n\nevent: x\r\nid: 2\r\ndata:b\r\n\r\nid: 3\n\ndata: é\r\rdata: last\n\n';
const want = [{ id: "1-a", data: '{"a":\n1}' }, { id: "2", name: "x", data: "b" }, { data: "é" }, { data: "last" }];

it("reads events, wherever the stream is cut", () => {
  for (let size = 1; size <= stream.length; size++) {
    const read = sseReader();
    const got = [];
    for (let at = 0; at < stream.length; at += size) got.push(...read(stream.slice(at, at + size)));
    expect(got, `pieces of ${size}`).toEqual(want);
  }
});

it("gives no event that is not complete", () => {
  expect(sseReader()("id: 1\ndata: x\n")).toEqual([]);
});
