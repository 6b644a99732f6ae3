import { expect, it } from "vitest";
import { own } from "../src/dom/own";

it.each(Object.getOwnPropertyNames(Object.prototype))(
  "%j is no value of an empty object",
  (name) => {
    expect(own({}, name)).toBeUndefined();
    expect(own(JSON.parse(`{"${name}": 1}`), name)).toBe(1);
  },
);
