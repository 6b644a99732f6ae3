"""SmolLM2 from GGUF to a folder that transformers loads in a second.

Transformers reads GGUF too, but takes half a minute each time, most of it for the tokenizer.
"""

import sys
from pathlib import Path


def convert(packed: Path, folder: Path) -> None:
    """Read model and tokenizer from the GGUF file in one folder, and save them in another."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (file,) = packed.glob("*.gguf")
    quantized = AutoModelForCausalLM.from_pretrained(
        packed, gguf_file=file.name, dtype=torch.float32
    )
    # The weights are plain numbers by now, but the model still counts as quantized, and such a one
    # refuses to be saved. A new model of the same shape does not.
    del quantized.config.quantization_config
    model = AutoModelForCausalLM.from_config(quantized.config, dtype=torch.float32)
    model.load_state_dict(quantized.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(packed, gguf_file=file.name).save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
