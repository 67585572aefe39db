#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: read_page.py PAGE [PIXELS MEAN DEVIATION]: reads a page of
loong-data show as a browser would, and prints a line for each of its samples:
ids, + before those that are learned, one for all places of a picture. Elements
must be closed, nothing may be loaded from elsewhere, no script runs, links have
their target, places follow each other, and squares of pictures have the
positions that Qwen2-VL's get_rope_index gives. PIXELS: f32 [3,H,W] that
transformers makes of the first picture; its bytes must be those of the page."""
import array
import base64
import re
import struct
import sys
import zlib
from html.parser import HTMLParser

DATA = "data:image/png;base64,"
VOID = {"meta", "img", "input"}


def png(data):
    """Width, height and bytes [H,W,3] of an 8-bit RGB PNG."""
    at, head, body = 8, None, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        chunk = data[at + 8:at + 8 + size]
        head = struct.unpack(">IIBBBBB", chunk) if kind == b"IHDR" else head
        body += chunk if kind == b"IDAT" else b""
        at += size + 12
    width, height, depth, colour = head[:4]
    assert (depth, colour) == (8, 2)
    raw, rows = zlib.decompress(body), [bytearray(3 * width)]
    for y in range(height):
        line = bytearray(raw[y * (3 * width + 1):(y + 1) * (3 * width + 1)])
        kind, row, above = line[0], line[1:], rows[-1]
        for x in range(3 * width):
            a = row[x - 3] if x >= 3 else 0
            b, c = above[x], above[x - 3] if x >= 3 else 0
            paeth = min((a, b, c), key=lambda v: abs(a + b - c - v))
            row[x] = (row[x] + (0, a, b, (a + b) // 2, paeth)[kind]) % 256
        rows.append(row)
    return width, height, b"".join(rows[1:])


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.samples, self.links, self.ids = [], [], [], set()
        self.squares, self.images, self.merged = [], [], False

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        assert tag not in ("script", "iframe", "link", "object"), tag
        assert not any(name.startswith("on") for name in a), a
        assert a.get("src", DATA).startswith(DATA), a
        assert a.get("href", "#").startswith("#"), a
        if tag not in VOID:
            self.open.append(tag)
        if "id" in a:
            assert a["id"] not in self.ids
            self.ids.add(a["id"])
        self.links += [a["href"][1:]] if "href" in a else []
        if tag == "section":
            self.samples.append([])
        if tag == "img":
            self.images.append(png(base64.b64decode(a["src"].split(",")[1])))
            assert (int(a["width"]), int(a["height"])) == self.images[-1][:2]
        if tag == "rect":
            self.merged = a["class"] == "m"
        if tag == "rect" and self.merged:
            self.squares.append([len(self.samples) - 1, len(self.images),
                                 int(a["x"]) // int(a["width"]),
                                 int(a["y"]) // int(a["height"]), ""])
        if a.get("class", "").split(" ")[0] in ("t", "p") and "title" in a:
            self.samples[-1].append((a["class"], a["title"]))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open and self.open[-2:] == ["rect", "title"] and self.merged:
            self.squares[-1][4] += data


def place(text):
    return int(re.search(r"place (\d+)", text)[1])


def axes(text):
    return tuple(map(int, re.search(r"\((\d+), (\d+), (\d+)\)", text).groups()))


def print_samples(page):
    for number, tokens in enumerate(page.samples):
        line, at = [], 0
        for kind, title in tokens:
            learned = kind == "t l"
            assert ("weight 0" in title) != learned or kind == "p", title
            if "place " in title:
                assert place(title) == at, title
                at = int(re.findall(r"place (\d+)", title)[-1]) + 1
            line.append("+" * learned + re.search(r"id (\d+)", title)[1])
        squares = [s for s in page.squares if s[0] == number]
        pictures = [title for kind, title in tokens if kind == "p"]
        rows = sum(int(b) - int(a) + 1 for a, b in
                   (re.findall(r"place (\d+)", t) for t in pictures))
        squares = {s[4] for s in squares}  # a video's frames share theirs
        assert not squares or rows == len(squares), (rows, len(squares))
        print(" ".join(line))


def check_positions(page):
    """A picture begins behind the largest position before it."""
    start = None
    for number, image, x, y, title in page.squares:
        if "(" in title:
            start = axes(title) if (x, y) == (0, 0) else start
            t = start[0]
            assert start == (t, t, t) and axes(title) == (t, t + y, t + x), title


def check_pixels(page, path, mean, deviation):
    width, height, got = page.images[0]
    values = array.array("f")
    with open(path, "rb") as f:
        values.frombytes(f.read())
    assert len(values) == 3 * width * height, (len(values), width, height)
    for i, byte in enumerate(got):
        want = values[i % 3 * width * height + i // 3]
        assert byte == round(255 * (want * deviation + mean)), (i, byte, want)


page = Page()
with open(sys.argv[1], encoding="utf-8") as f:
    page.feed(f.read())
page.close()
assert page.open == [] and set(page.links) <= page.ids
print_samples(page)
check_positions(page)
if len(sys.argv) > 2:
    check_pixels(page, sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
