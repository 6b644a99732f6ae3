"""Name the axes of the tensors in Regard's signatures.

Public tensors are ``[batch, heads, sequence, dim]``. Shapes in signatures, such as
``Float[Tensor, "batch heads queries key_dim"]``, use these names; the same name twice in one
signature is the same size.

========== =====================================================================================
name       meaning
========== =====================================================================================
batch      sequences, computed independently
heads      query heads, also of the output and of the attention matrix
key_heads  key and value heads; ``heads`` is a multiple of it (grouped queries) or equal to it
queries    query positions
keys       key positions
sequence   positions, where queries and keys have the same
dim        features of a position or head
key_dim    features of a query or key
value_dim  features of a value or of the output
========== =====================================================================================

An attention matrix is ``[batch, heads, queries, keys]``, and its log-sum-exp
``[batch, heads, queries]``.
"""
