"""The exercise of docs/learn/recurrent.md."""

# --8<-- [start:solution]
import torch

from regard.layers import RecurrentSelfAttention


def test_additive_alignment_by_hand_is_that_of_the_layer() -> None:
    torch.manual_seed(0)
    x = torch.randn(7, 3)
    layer = RecurrentSelfAttention(input_dim=3, state_dim=5, align="additive")
    A = layer.transition.weight
    W, U = layer.align.earlier.weight, layer.align.current.weight
    v = layer.align.total.weight[0]

    context, states, contexts = torch.zeros(5), [], []
    for token in x:
        states.append(torch.tanh(A @ torch.cat([token, context])))
        earlier = torch.stack(states)
        scores = torch.tanh(earlier @ W.T + U @ states[-1]) @ v
        context = torch.softmax(scores, dim=0) @ earlier
        contexts.append(context)

    output = layer(x[None])
    torch.testing.assert_close(output.states[0], torch.stack(states))
    torch.testing.assert_close(output.contexts[0], torch.stack(contexts))

    # Masked by construction: another last token changes nothing before it.
    x[-1] += 1.0
    torch.testing.assert_close(layer(x[None]).contexts[:, :-1], output.contexts[:, :-1])


# --8<-- [end:solution]
