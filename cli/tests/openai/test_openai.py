#!/usr/bin/env python3
"""OpenAI's own client against `zen-edge serve`; run by cli/tests/serve_openai.rs, which starts the server.

  python test_openai.py http://127.0.0.1:PORT KEY MODEL
"""

import array
import asyncio
import json
import sys
import urllib.request

import openai

BASE, KEY, MODEL = sys.argv[1:]
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a river."}]


def client(**more):
    return openai.OpenAI(**{"base_url": f"{BASE}/v1", "api_key": KEY, "max_retries": 0, **more})


def raw(prompt):
    """The vector as a script that was written for llama-server asks for it."""
    body = json.dumps({"content": prompt}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    with urllib.request.urlopen(urllib.request.Request(f"{BASE}/embedding", body, headers)) as answer:
        return json.load(answer)[0]["embedding"][0]


def refused(kind, code, call):
    try:
        call()
    except kind as error:
        assert error.code == code, (code, error.code, error)
        return error
    raise AssertionError(f"{code}: it was answered")


def models():
    assert MODEL in [model.id for model in client().models.list()]
    assert client().models.retrieve(MODEL).id == MODEL


def embeddings():
    texts = ["why is the sky blue?", "café 😀"]
    # Without a format the client asks for base64 and decodes it.
    default = client().embeddings.create(model=MODEL, input=texts)
    floats = client().embeddings.create(model=MODEL, input=texts, encoding_format="float")
    for at, text in enumerate(texts):
        assert default.data[at].index == at
        # The same 32-bit floats: from bytes the one, from decimals the other.
        assert array.array("f", default.data[at].embedding) == array.array("f", floats.data[at].embedding)
        assert floats.data[at].embedding == raw(text)
    assert default.usage.prompt_tokens == default.usage.total_tokens > 0
    ids = client().embeddings.create(model=MODEL, input=[[1, 2, 3], [4]])
    assert len(ids.data) == 2 and ids.usage.prompt_tokens == 4
    refused(openai.NotFoundError, "model_not_found", lambda: client().embeddings.create(model="other", input="a"))
    refused(openai.BadRequestError, "empty_input", lambda: client().embeddings.create(model=MODEL, input=[]))
    wrong = client(api_key="wrong")
    refused(openai.AuthenticationError, "invalid_api_key", lambda: wrong.embeddings.create(model=MODEL, input="a"))


def chat():
    ask = lambda **more: client().chat.completions.create(model=MODEL, messages=MESSAGES, **more)  # noqa: E731
    whole = ask(max_tokens=16)
    assert whole.object == "chat.completion" and whole.model == MODEL
    choice = whole.choices[0]
    assert choice.message.role == "assistant" and choice.finish_reason in ("stop", "length")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert 0 < whole.usage.completion_tokens <= 16
    assert ask(max_completion_tokens=16, n=1, user="u", temperature=0).choices[0].message.content == choice.message.content

    chunks = list(ask(max_tokens=16, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == choice.message.content, (text, choice.message.content)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == choice.finish_reason
    assert chunks[-1].usage == whole.usage and not chunks[-1].choices

    warm = {"max_tokens": 16, "temperature": 1.5, "top_p": 0.95}
    seeded = [ask(seed=seed, **warm).choices[0].message.content for seed in (5, 5, 6, 7, 8)]
    assert seeded[0] == seeded[1] and len(set(seeded)) > 1, seeded
    extra = ask(max_tokens=4, extra_body={"top_k": 1, "min_p": 0.1, "repetition_penalty": 1.1})
    assert extra.choices[0].message.content

    error = refused(openai.BadRequestError, "unsupported_field", lambda: ask(n=2))
    assert error.param == "n"
    refused(openai.BadRequestError, "invalid_value", lambda: ask(temperature=9))
    refused(openai.BadRequestError, "invalid_value", lambda: ask(stream=True, top_p=0))
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    refused(
        openai.BadRequestError,
        "unsupported_field",
        lambda: client().chat.completions.create(model=MODEL, messages=image),
    )

    # A stop text that is known to come; the client's own helper refuses an answer that was cut by its length.
    stop, before = text[4:7], text[: text.index(text[4:7])]
    with client().chat.completions.stream(model=MODEL, messages=MESSAGES, max_tokens=16, stop=[stop]) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion().choices[0]
    assert (final.message.content or "", final.finish_reason) == (before, "stop"), (final, text)


async def many():
    """Several at once, and streams that are left in the middle: the server goes on."""
    asking = openai.AsyncOpenAI(base_url=f"{BASE}/v1", api_key=KEY, max_retries=0)
    vectors = await asyncio.gather(*(asking.embeddings.create(model=MODEL, input=f"prompt {i}") for i in range(16)))
    assert len({tuple(vector.data[0].embedding) for vector in vectors}) == 16
    for _ in range(4):
        stream = await asking.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, max_tokens=1000)
        async for chunk in stream:
            assert chunk.choices
            break
        await stream.close()
    await asking.close()


def main():
    models()
    embeddings()
    chat()
    asyncio.run(many())
    print(f"openai {openai.__version__}: models, embeddings, chat, streams")


if __name__ == "__main__":
    main()
