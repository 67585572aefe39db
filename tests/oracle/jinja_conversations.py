# SPDX-License-Identifier: Apache-2.0
"""Conversations of our own, as variables of a chat template."""

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Tells the weather of a place.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "A town"},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "days": {"type": "integer", "default": 1}},
            "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "add", "description": "Adds \"numbers\" & <more>.",
        "parameters": {"type": "object", "properties": {
            "values": {"type": "array", "items": {"type": "number"}}},
            "required": ["values"]},
        "return": {"type": "number", "description": "The sum"}}},
    {"type": "function", "function": {
        "name": "nothing", "description": "",
        "parameters": {"type": "object", "properties": {}}}},
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
           "unk_token": "<unk>"}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments, number=0):
    return {"id": f"call{number:05d}", "type": "function",
            "function": {"name": name, "arguments": arguments}}


def tool(content, name="get_weather", number=0):
    return {"role": "tool", "content": content, "name": name,
            "tool_call_id": f"call{number:05d}"}


def text(*parts):
    return [{"type": "text", "text": p} for p in parts]


ODD = ("Ünïcödé 世界 🌍👩‍👩‍👧 e\u0301 \u00a0\u3000 'q' \"d\" \\ \t tab\r\n"
       "<|im_start|> {{ not }} {% a tag %} </s> & < > \u2028 \x07")
WEATHER = [
    user("Weather in Oslo?"),
    assistant("", tool_calls=[call("get_weather", {"city": "Oslo"})]),
    tool('{"temperature": 5.5, "sky": "grå"}'),
    assistant("It is 5.5 degrees."),
]


def plain():
    yield [user("Hello")]
    yield [user("Hello"), assistant("Hi!")]
    yield [system("Be kind."), user("Hello")]
    yield [system("Be kind."), user("a"), assistant("b"), user("c"),
           assistant("d"), user("e")]
    yield [user(""), assistant(""), user("")]
    yield [system(""), user("  spaces  "), assistant("\n\nlines\n\n")]
    yield [user(ODD), assistant(ODD), user(ODD)]
    yield [system(ODD), user("x")]
    yield [user("one"), user("two")]
    yield [assistant("first"), user("then")]
    yield [user("a"), assistant("b"), assistant("c")]
    yield [system("one"), system("two"), user("x")]
    yield [user("a"), assistant("b"), system("late"), user("c")]
    yield [{"role": "developer", "content": "Rules."}, user("x")]
    yield [{"role": "nobody", "content": "?"}, user("x")]
    yield [user("x" * 3000), assistant("y\n" * 500)]
    yield [user(f"q{i // 2}") if i % 2 == 0 else assistant(f"a{i // 2}")
           for i in range(21)]
    yield []
    yield [user(None), assistant(None)]
    yield [{"role": "user"}]


def parts():
    yield [user(text("Hello")), assistant(text("Hi!"))]
    yield [system(text("Be kind.")), user(text("a", "b")), assistant("c")]
    yield [user([{"type": "image"}, {"type": "text", "text": "What is it?"}]),
           assistant(text("A cat."))]
    yield [user([{"type": "text", "text": "See"},
                 {"type": "image_url", "image_url": {"url": "http://a/b"}},
                 {"type": "video"}]), assistant("ok")]
    yield [user([]), assistant([])]


def thinking():
    yield [user("2+2?"), assistant("4", reasoning_content="Add them.",
                                   thinking="Add them.")]
    yield [user("2+2?"), assistant("<think>\nAdd.\n</think>\n\n4"),
           user("3+3?")]
    yield [user("a"), assistant("<think>t</think>b"), user("c"),
           assistant("<think>\nu\n</think>\n\nd")]
    yield [user("a"), assistant("b", reasoning_content="r"), user("c"),
           assistant("d", reasoning_content="s", thinking="s")]
    yield [user("a"), assistant("", reasoning_content="only reason",
                                thinking="only reason"), user("b")]


def tools():
    yield WEATHER[:1]
    yield WEATHER[:2]
    yield WEATHER[:3]
    yield WEATHER
    yield [system("Use tools.")] + WEATHER + [user("Thanks")]
    yield [user("Two"), assistant("Both.", tool_calls=[
        call("get_weather", {"city": "Rom", "days": 2, "unit": None}, 1),
        call("add", {"values": [1, 2.5, -3], "deep": {"a": [True, "ö"]}}, 2)]),
        tool("sunny", number=1), tool("0.5", "add", 2), assistant("Done.")]
    yield [user("s"), assistant(None, tool_calls=[
        call("get_weather", '{"city": "Bergen"}')]), tool("rain")]
    yield [user("n"), assistant("", tool_calls=[call("nothing", {})]),
           tool(""), assistant("")]
    yield [user("think"), assistant("", reasoning_content="I need it.",
                                    thinking="I need it.", tool_calls=[
               call("add", {"values": [1]})]), tool("1", "add"),
           assistant("1", reasoning_content="So.")]
    yield [user("l"), assistant("x", tool_calls=[call("add", {"values": []})]),
           {"role": "tool", "content": text("part"), "name": "add",
            "tool_call_id": "call00000"}, user("next")]


def conversations():
    talks = []
    for number, messages in enumerate(list(plain()) + list(parts())
                                      + list(thinking())):
        talks.append({"messages": messages, "tools": None, "documents": None,
                      "add_generation_prompt": number % 2 == 0, **SPECIAL})
    for number, messages in enumerate(tools()):
        talks.append({"messages": messages, "tools": TOOLS[:1 + number % 3],
                      "documents": None,
                      "add_generation_prompt": number % 2 == 1, **SPECIAL})
    talks[3]["enable_thinking"] = False
    talks[26]["enable_thinking"] = True
    talks[27]["enable_thinking"] = False
    talks[33]["enable_thinking"] = False
    talks[29]["preserve_thinking"] = True
    talks[5].pop("documents")
    talks[6].pop("tools")
    talks[8]["documents"] = [{"title": "T", "text": "Some text"}]
    talks[9]["reasoning_effort"] = "high"
    return talks
