/** A value of an object by a name from elsewhere: every object has a "constructor" that is none of its own. */
export function own<Value>(
  values: Readonly<Record<string, Value>>,
  name: string,
): Value | undefined {
  return Object.hasOwn(values, name) ? values[name] : undefined;
}
