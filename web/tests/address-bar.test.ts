import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { AddressBar } from "../src/look/address-bar";

const page = { hash: "" };
let tell: () => void = () => {};

beforeEach(() => {
  vi.useFakeTimers();
  page.hash = "#row=1";
  vi.stubGlobal("location", page);
  vi.stubGlobal("window", globalThis);
  vi.stubGlobal("history", {
    replaceState: (_state: unknown, _title: string, address: string) => {
      page.hash = address;
    },
  });
  vi.stubGlobal("addEventListener", (_name: string, listener: () => void) => {
    tell = listener;
  });
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("the last of many states is written", () => {
  const address = new AddressBar();
  address.write("row=2");
  address.write("row=3");
  vi.runAllTimers();
  expect(page.hash).toBe("#row=3");
});

test("what the reader enters is not overwritten, however late it is told", () => {
  const address = new AddressBar();
  const heard: string[] = [];
  address.listen((hash) => heard.push(hash));
  address.write("row=2");
  page.hash = "#row=9";
  vi.runAllTimers();
  expect(page.hash).toBe("#row=9");
  tell();
  expect(heard).toEqual(["#row=9"]);
  // From then on, states are written again.
  address.write("row=5");
  vi.runAllTimers();
  expect(page.hash).toBe("#row=5");
  address.write("row=6");
  vi.runAllTimers();
  expect(page.hash).toBe("#row=6");
});
