import { element } from "../dom/element";

interface Option<Value extends string> {
  readonly value: Value;
  readonly name: string;
}

/** A choice between a few things that are all in sight. */
export class Switch<Value extends string> {
  readonly element: HTMLFieldSetElement;
  readonly #inputs = new Map<Value, HTMLInputElement>();

  constructor(
    name: string,
    legend: string,
    options: readonly Option<Value>[],
    chosen: (value: Value) => void,
  ) {
    this.element = element("fieldset", { class: `switch ${name}` });
    this.element.append(element("legend", { class: "unseen" }, legend));
    for (const option of options) {
      const input = element("input", { type: "radio", name, value: option.value });
      input.addEventListener("change", () => chosen(option.value));
      this.#inputs.set(option.value, input);
      this.element.append(element("label", {}, input, element("span", {}, option.name)));
    }
  }

  show(value: Value): void {
    const input = this.#inputs.get(value);
    if (input && !input.checked) input.checked = true;
  }

  /** Grey an option out, with the reason; no reason lets it be chosen again. */
  refuse(value: Value, reason: string): void {
    const input = this.#inputs.get(value);
    if (!input) return;
    input.disabled = reason !== "";
    const label = input.parentElement;
    if (label) label.title = reason;
  }
}
