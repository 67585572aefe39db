# SPDX-License-Identifier: Apache-2.0
"""Templates as transformers runs them, and the file that test_jinja reads."""
import datetime
import json
import time

from transformers.utils import chat_template_utils

NOW = datetime.datetime(2026, 1, 15, 12, 34, 56)


class _Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 15, 12, 34, 56)


chat_template_utils.datetime = _Fixed


def byte_spans(text, spans):
    return [[len(text[:a].encode()), len(text[:b].encode())] for a, b in spans]


class Cases:
    """Collects cases; render() says what transformers gives."""

    def __init__(self):
        self.templates, self.variables, self.cases = [], [], []
        self._number = {}
        self.refused = 0

    def template(self, text):
        if text not in self._number:
            self._number[text] = len(self.templates)
            self.templates.append(text)
        return self._number[text]

    def add(self, name, text, variables, shared=None, error=None):
        """shared: the number of `variables` in self.variables."""
        case = {"name": name, "template": self.template(text),
                "variables": variables if shared is None else shared}
        try:
            compiled = chat_template_utils._compile_jinja_template(text)
            blocks, spans = [], []
            environment = compiled.environment
            with environment.activate_tracker(blocks, spans):
                for block in compiled.generate(**variables):
                    blocks.append(block)
            out = "".join(blocks)
            out.encode()
            case["text"] = out
            if "generation" in text:
                case["spans"] = byte_spans(out, spans)
        except Exception as failure:  # what jinja2 and Python raise
            self.refused += 1
            if error:
                case["error"] = error
            case["why"] = f"{type(failure).__name__}: {failure}"[:200]
        self.cases.append(case)
        return case

    def file(self):
        """Without "why", which is for those who look."""
        return {"now": int(time.mktime(NOW.timetuple())),
                "templates": self.templates, "variables": self.variables,
                "cases": [{k: v for k, v in c.items() if k != "why"}
                          for c in self.cases]}

    def write(self, path):
        with open(path, "w", encoding="utf-8") as out:
            json.dump(self.file(), out, ensure_ascii=False, indent=0)
            out.write("\n")
