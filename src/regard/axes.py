"""Name the axes of the tensors in Regard's signatures.

Tensors are laid out ``[batch, heads, sequence, dim]`` everywhere in public. A shape in a signature,
such as ``Float[Tensor, "batch heads queries key_dim"]``, is made of these names; the same name
twice in one signature is the same size.

========== =====================================================================================
name       what is counted along it
========== =====================================================================================
batch      examples, computed independently of each other
heads      query heads, and so the heads of the output and of the attention matrix
key_heads  key and value heads; ``heads`` is a multiple of it, and equal to it unless queries are
           grouped
queries    positions that look
keys       positions that are looked at
sequence   positions, where those that look and those that are looked at are the same
dim        features of a position, where nothing tells a key's from a value's
key_dim    features of a query and of a key, whose dot product is the score
value_dim  features of a value and of the output
========== =====================================================================================

An attention matrix is ``[batch, heads, queries, keys]``, and its log-sum-exp
``[batch, heads, queries]``.
"""
