import { own } from "../../dom/own";
import type { CallLooks, Direction, HeadRef, Info, Measure } from "./contract";
import { isThere, nameOfCall } from "./heads";

/** A head in a sorted list. */
export interface RankedHead {
  readonly ref: HeadRef & { readonly call: number };
  /** As people say it: 18.6. */
  readonly name: string;
  readonly value: number;
}

/** A head and its strongest look: the token at the other end, and the text of that. */
export interface RankedLook extends RankedHead {
  readonly text: number;
  readonly token: number;
}

/** All heads with a measure, the largest first; effects may be negative, and go by their size. */
export function byMeasure(info: Info, measure: Measure): RankedHead[] {
  const heads = info.calls.flatMap((call, index) =>
    (own(call.measures, measure.name) ?? []).flatMap((value, head): RankedHead[] => {
      const ref = { call: index, head };
      if (value === null || !isThere(info, ref)) return [];
      return [{ ref, name: `${nameOfCall(call)}.${head}`, value }];
    }),
  );
  return heads.sort((one, other) => Math.abs(other.value) - Math.abs(one.value));
}

/** All heads in which a look counts, the strongest first. */
export function byLooks(
  info: Info,
  looks: readonly CallLooks[],
  direction: Direction,
): RankedLook[] {
  const heads = looks.flatMap(({ call: index, tokens, weights }) => {
    const call = info.calls[index];
    if (!call) return [];
    const text = direction === "from" ? call.keyText : call.queryText;
    return tokens.flatMap((token, head): RankedLook[] => {
      if (token === null) return [];
      const [ref, name] = [{ call: index, head }, `${nameOfCall(call)}.${head}`];
      return [{ ref, name, value: weights[head] ?? 0, text, token }];
    });
  });
  return heads.sort((one, other) => other.value - one.value);
}
