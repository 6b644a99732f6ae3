"""Watch requests inside vLLM, a serving engine.

    with regard.watch(llm) as seen:
        outputs = llm.generate(prompts)
    seen.requests[outputs[0].request_id][5].matrix

`regard.watch` uses this package for a `vllm.LLM`. It does not import vLLM: the process of an
engine already has.
"""
