"""Every type of model in transformers, made small, run, watched, and held against its own weights.

    python -m zoo                  # all types that are not kept yet; then writes the docs' table
    python -m zoo --anew           # all of them
    python -m zoo --only bert gpt2
    python -m zoo --sample         # the types that CI runs

Read in this order: `types` (which types there are, and their classes), `shrink` and `hints` (small
configurations), `weights` (strong ones), `inputs`, `oracle` (what a model itself says its weights
are), `compare`, `examine` (all that is asked of one type), `result`, `pool` and `page`.
"""
