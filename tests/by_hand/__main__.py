"""Print how many modules are right, refused and wrong: `python -m tests.by_hand [FILE]`.

With a file, all verdicts are written to it as JSON.
"""

import json
import sys
import warnings
from collections import Counter
from pathlib import Path

import torch

from tests.by_hand.judge import judge
from tests.by_hand.modules import specs


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    verdicts = {}
    for spec in specs():
        try:
            verdicts[str(spec)] = judge(spec)
        except Exception as error:  # noqa: BLE001
            verdicts[str(spec)] = {"all": f"failed: {type(error).__name__} {error}"}
    table: dict[str, Counter[str]] = {}
    for answers in verdicts.values():
        for question, answer in answers.items():
            table.setdefault(question, Counter())[answer.partition(":")[0]] += 1
    print(f"{len(verdicts)} modules")
    for question, counts in table.items():
        print(
            f"{question:14}"
            + "".join(
                f"{name:>10} {counts[name]:5}" for name in ("right", "refused", "wrong", "failed")
            )
        )
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(verdicts, indent=1))


if __name__ == "__main__":
    main()
