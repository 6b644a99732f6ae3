"""`attend` as an attention of transformers.

    regard.hf.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="regard")

or, for a model that is there already, with a pattern for its layers if one is wanted:

    regard.hf.use(model, pattern=regard.window(before=255))

Nothing else of the model changes. Masks stay patterns on their way through it, so that no n × n
tensor is made for what a few numbers describe.
"""

from regard.hf.use import register, use

__all__ = ["register", "use"]
