"""Processes that work together: `ranks`, their patterns and biases compared, their heads.

Read `ranks` first (results and errors of all ranks, messages between two of them). `content` names
patterns and biases by what they hold, and `head_shards` has the heads of a layer in a process.
"""
