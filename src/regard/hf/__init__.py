"""`attend` as an attention of transformers.

    regard.hf.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="regard")

or, for a loaded model, optionally with a pattern for its layers:

    regard.hf.use(model, pattern=regard.window(before=255))

Masks stay patterns on their way through the model, so no n × n tensor is made for them.
"""

from regard.hf.use import register, use

__all__ = ["register", "use"]
