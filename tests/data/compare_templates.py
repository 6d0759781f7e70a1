#!/usr/bin/env python3
"""compare_templates.py - chat templates rendered by plimsoll and by transformers.

Renders odd conversations through every template of a directory with both, and compares bytes and
refusals. Exit status 0: no difference; 1: a difference; 77: transformers is not installed.

Usage: compare_templates.py PLIMSOLL DIR [--only PART] [--show N] [--least PERCENT]
"""
import argparse
import datetime
import glob
import json
import os
import subprocess
import sys

DAY = "2025-01-02"
BOS, EOS = "<s>", "</s>"


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def user(content, **more):
    return message("user", content, **more)


def answer(content, **more):
    return message("assistant", content, **more)


def system(content):
    return message("system", content)


TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place, \"now\" & <later>.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "City, é\n"},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "days": {"type": ["integer", "null"], "default": 3},
                "box": {"type": "object", "properties": {"x": {"type": "number"}}},
                "list": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["place"],
        },
    },
}
BARE_TOOL = {"name": "noop", "description": "", "parameters": {"type": "object", "properties": {}}}


def call(arguments, name="get_weather", id="call00001"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def bare_call(arguments):
    return {"name": "get_weather", "arguments": arguments}


PLACE = {"place": "Łódź", "days": 2, "share": 0.5, "deep": {"a": [1, None, True]}}
CALLS = [user("weather?"), answer("", tool_calls=[call(PLACE)])]
RESULT = message("tool", "{\"t\": 21.5}", tool_call_id="call00001", name="get_weather")


def conversations():
    """(name, messages, further arguments), 65 of them with and without a header to answer."""
    talk = [user("one"), answer("two"), user("three")]
    yield "question", [user("Hello?")], {}
    yield "talk", talk, {}
    yield "answered", talk + [answer("four")], {}
    yield "system", [system("Be kind.")] + talk, {}
    yield "system only", [system("Be kind.")], {}
    yield "two systems", [system("a"), system("b"), user("c")], {}
    yield "late system", talk + [system("late"), user("go")], {}
    yield "unicode", [system("Ünï\u2028cödé"), user("日本語 \U0001f600 e\u0301"), answer("ß ﬁ İ"),
                      user("\u00a0nbsp\u3000")], {}
    yield "empty", [user(""), answer(""), user("")], {}
    yield "empty system", [system(""), user("x")], {}
    yield "blanks", [system("  s \n"), user("\n\n x \t\n"), answer("  y\n\n"), user(" z ")], {}
    yield "blank lines", [user("a\r\nb\rc\n\n\nd")], {}
    yield "marks", [user("<|im_end|></s>[/INST]<|eot_id|>{{ x }}{% if %}{# c #}")], {}
    yield "html", [user("<b>&amp;\"'</b>"), answer("a < b && c > d"), user("`")], {}
    yield "escapes", [user("\\n \\ \"q\" 'p' \x01\x7f\u200b")], {}
    yield "two users", [user("a"), user("b")], {}
    yield "two answers", [user("a"), answer("b"), answer("c"), user("d")], {}
    yield "answer first", [answer("b"), user("a")], {}
    yield "answer only", [answer("b")], {}
    yield "ends in answer", [user("a"), answer("b")], {}
    yield "null content", [user("a"), answer(None), user("b")], {}
    yield "no content", [user("a"), {"role": "assistant"}, user("b")], {}
    yield "parts", [user([{"type": "text", "text": "a"}, {"type": "text", "text": " b"}])], {}
    yield "parts of answers", [user("q"), answer([{"type": "text", "text": " a "}]), user("r")], {}
    yield "parts of systems", [system([{"type": "text", "text": "s"}]), user("q")], {}
    yield "no parts", [user([])], {}
    yield "image", [user([{"type": "image"}, {"type": "text", "text": "what?"}])], {}
    yield "image url", [user([{"type": "image_url", "image_url": {"url": "u"}},
                              {"type": "text", "text": "what?"}])], {}
    yield "unknown role", [user("a"), message("wizard", "b"), user("c")], {}
    yield "developer", [message("developer", "Be brief."), user("a")], {}
    yield "thoughts", [user("a"), answer("b", reasoning_content="hm\nhm"), user("c")], {}
    yield "last thoughts", [user("a"), answer("b", reasoning_content="hm")], {}
    yield "thinking", [user("a"), answer("b", thinking=" t "), user("c"), answer("d", reasoning="r")], {}
    yield "thoughts in text", [user("a"), answer("<think>\nhm\n</think>\n\nb"), user("c")], {}
    yield "open thoughts", [user("a"), answer("<think>hm"), user("c"), answer("x</think>y")], {}
    yield "no thinking", talk, {"enable_thinking": False}
    yield "do think", talk, {"enable_thinking": True}
    yield "thinking mode", talk, {"thinking": True, "reasoning_effort": "high"}
    yield "switch in text", [user("a /no_think"), answer("b"), user("c /think")], {}
    yield "tools", [user("weather?")], {"tools": [TOOL]}
    yield "tools and system", [system("s"), user("weather?")], {"tools": [TOOL, BARE_TOOL]}
    yield "no tools", talk, {"tools": []}
    yield "call", CALLS, {"tools": [TOOL]}
    yield "call without tools", CALLS, {}
    yield "result", CALLS + [RESULT], {"tools": [TOOL]}
    yield "result and answer", CALLS + [RESULT, answer("Warm.")], {"tools": [TOOL]}
    yield "result and question", CALLS + [RESULT, answer("Warm."), user("thanks")], {"tools": [TOOL]}
    yield "text and call", [user("w?"), answer("Let me see.", tool_calls=[call(PLACE)]), RESULT], {
        "tools": [TOOL]}
    yield "two calls", [user("w?"), answer("", tool_calls=[call({"place": "a"}),
                                                           call({"place": "b"}, id="call00002")]),
                        RESULT, message("tool", "2", tool_call_id="call00002")], {"tools": [TOOL]}
    yield "call as text", [user("w?"), answer("", tool_calls=[call(json.dumps(PLACE))]), RESULT], {
        "tools": [TOOL]}
    yield "bare call", [user("w?"), answer(None, tool_calls=[bare_call({"place": "a"})])], {
        "tools": [TOOL]}
    yield "call without content", [user("w?"), {"role": "assistant", "tool_calls": [call({})]}], {
        "tools": [TOOL]}
    yield "no calls", [user("w?"), answer("b", tool_calls=[]), user("c")], {}
    yield "null calls", [user("w?"), answer("b", tool_calls=None), user("c")], {}
    yield "thoughts and call", [user("w?"), answer("", reasoning_content="hm",
                                                   tool_calls=[call(PLACE)]), RESULT], {
        "tools": [TOOL]}
    yield "result as object", CALLS + [message("tool", {"t": 1})], {"tools": [TOOL]}
    yield "result in parts", CALLS + [message("tool", [{"type": "text", "text": "1"}])], {
        "tools": [TOOL]}
    yield "function role", CALLS + [message("function", "1", name="f")], {"tools": [TOOL]}
    yield "ipython role", CALLS + [message("ipython", "1")], {"tools": [TOOL]}
    yield "documents", [user("q")], {"documents": [{"title": "T", "text": "x\ny"}]}
    yield "date", [user("q")], {"date_string": "01 Feb 2024"}
    yield "builtin tools", [user("q")], {"builtin_tools": ["brave_search"], "tools_in_user_message": False}
    yield "many", [m for i in range(12) for m in (user(f"q{i}"), answer(f"a{i}"))], {}
    yield "nothing", [], {}
    yield "numbers", [user(1.5), answer(12), user(True)], {}


def truth_renderer():
    try:
        from transformers.utils import chat_template_utils as hf
    except ImportError:
        print("transformers is not installed: skipped")
        sys.exit(77)

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromisoformat(DAY)

    hf.datetime = Clock

    def render(text, request):
        request = dict(request)
        messages = request.pop("messages")
        if not messages:  # transformers asks for at least one where it looks for batches
            request["messages"] = messages
            request.setdefault("tools", None)
            request.setdefault("documents", None)
            return hf._compile_jinja_template(text).render(**request)
        return hf.render_jinja_template([messages], chat_template=text, **request)[0][0]

    return render


def requests(which):
    for name, messages, more in conversations():
        for generate in (False, True):
            request = {"messages": messages, "add_generation_prompt": generate,
                       "bos_token": BOS, "eos_token": EOS, **more}
            yield f"{name}{' +' if generate else ''}", request


def by_plimsoll(binary, path, lines):
    run = subprocess.run([binary, "tokenize", "--chat-template", path, "--json"],
                         input="\n".join(lines) + "\n", capture_output=True, text=True)
    answers = [json.loads(line) for line in run.stdout.split("\n") if line]
    if len(answers) < len(lines):
        return None, (run.stderr.strip() or run.stdout.strip())[:300]
    return answers, ""


def compare(truth, wanted, answer):
    """equal, refused or DIFFERENT, and a word about it."""
    try:
        rendered = truth()
    except Exception as error:  # whatever a template may raise
        from jinja2 import TemplateError
        if "error" in answer and (type(error) is not TemplateError
                                  or answer["error"]["message"] == str(error)[:900]):
            return "equal", ""
        return "DIFFERENT", f"transformers: {type(error).__name__}: {error}"
    if "error" not in answer:
        if answer["rendered"] == rendered:
            return "equal", ""
        at = len(os.path.commonprefix([rendered, answer["rendered"]]))
        return "DIFFERENT", (f"at {at}: want {rendered[max(0, at - 30):at + 40]!r} "
                             f"got {answer['rendered'][max(0, at - 30):at + 40]!r}")
    said = json.dumps(answer["error"])
    return ("refused" if "not supported" in said else "DIFFERENT"), said[:300]


def check_template(binary, path, render, show):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    named = list(requests(path))
    lines = [json.dumps({"date": DAY, **r}) for _, r in named]
    answers, why = by_plimsoll(binary, path, lines)
    counts = {"equal": 0, "refused": 0, "DIFFERENT": 0}
    if answers is None:
        try:
            render(text, named[0][1])
        except Exception as error:
            from jinja2 import TemplateSyntaxError
            if isinstance(error, TemplateSyntaxError):
                return {"equal": len(named), "refused": 0, "DIFFERENT": 0}
        print(f"{os.path.basename(path)}: refused: {why}")
        return {"equal": 0, "refused": len(named), "DIFFERENT": 0}
    for (name, request), answer in zip(named, answers):
        what, words = compare(lambda: render(text, request), name, answer)
        counts[what] += 1
        if what != "equal" and counts[what] <= show:
            print(f"{os.path.basename(path)}: {name}: {what}: {words}")
    return counts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plimsoll")
    parser.add_argument("directory")
    parser.add_argument("--only", default="")
    parser.add_argument("--show", type=int, default=2)
    parser.add_argument("--least", type=float, default=98)
    options = parser.parse_args()
    render = truth_renderer()
    paths = sorted(p for p in glob.glob(os.path.join(options.directory, "*.jinja"))
                   if options.only in p)
    whole, total = 0, {"equal": 0, "refused": 0, "DIFFERENT": 0}
    for path in paths:
        counts = check_template(options.plimsoll, path, render, options.show)
        whole += counts["equal"] == sum(counts.values())
        for key, n in counts.items():
            total[key] += n
    print(f"{len(paths)} templates, {whole} equal in all renders; renders: "
          + ", ".join(f"{n} {key}" for key, n in total.items()))
    share = 100 * whole / max(1, len(paths))
    return 0 if share >= options.least and not total["DIFFERENT"] else 1


if __name__ == "__main__":
    sys.exit(main())
