"""See the attention of requests inside vLLM, a serving engine.

    with regard.watch(llm) as seen:
        outputs = llm.generate(prompts)
    seen.requests[outputs[0].request_id][5].matrix

`regard.watch` comes here if it is given a `vllm.LLM`. vLLM is never imported: whoever has an
engine has done so.
"""
