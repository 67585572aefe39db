#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures and questions about them, made by rule (docs/image-text-examples.md).

  picture_questions.py OUT [--train N] [--held-out N] [--size PIXELS] [--seed S]

Writes OUT/pictures/*.png, and OUT/train.jsonl and OUT/held_out.jsonl, a
conversation a line, in the "messages" format with "images" beside it. A third
of the pictures each are shapes in the corners of a square, bars of a chart, and
a word; places, sizes, colours and the grey behind them are drawn. A
conversation of train.jsonl asks for all that is in its picture and two other
questions; in held_out.jsonl each question is a conversation of its own, so that
no answer tells another. blind.jsonl and held_out_blind.jsonl are the same
without pictures: what of them can be guessed. captions.jsonl and
held_out_captions.jsonl ask for all that is in a picture and nothing else.
texts.txt has the texts, for a tokenizer. The same arguments and Pillow give the
same files.
"""
import argparse
import json
import os
import random

from PIL import Image, ImageDraw, ImageFont

COLOURS = {"red": (220, 30, 30), "green": (30, 160, 50), "blue": (40, 70, 220),
           "yellow": (240, 210, 20), "purple": (140, 40, 170),
           "black": (15, 15, 15)}
SHAPES = ("circle", "square", "triangle")
CORNERS = {"top left": (0, 0), "top right": (1, 0),
           "bottom left": (0, 1), "bottom right": (1, 1)}
NUMBERS = ("one", "two", "three", "four")
WORDS = ("box", "bus", "cat", "cup", "dog", "door", "egg", "fire", "fish",
         "hat", "ice", "key", "lamp", "map", "milk", "net", "pen", "rain",
         "ship", "star", "sun", "tree", "van", "wall")
ALL = "What is in the picture?"


def draw_shape(draw, shape, colour, x, y, side):
    if shape == "circle":
        draw.ellipse((x, y, x + side, y + side), fill=colour)
    elif shape == "square":
        draw.rectangle((x, y, x + side, y + side), fill=colour)
    else:
        draw.polygon([(x, y + side), (x + side, y + side), (x + side / 2, y)],
                     fill=colour)


def shapes(rng, draw, size):
    """One to four shapes, each in a corner of its own."""
    corners = rng.sample(list(CORNERS), rng.randint(1, 4))
    seen = {}
    for corner in corners:
        seen[corner] = rng.choice(SHAPES), rng.choice(list(COLOURS))
        side = rng.uniform(0.25, 0.4) * size
        x, y = (CORNERS[corner][i] * size / 2 + rng.uniform(0.02, 0.08) * size
                for i in range(2))
        draw_shape(draw, seen[corner][0], COLOURS[seen[corner][1]], x, y, side)
    asked = [("How many shapes are there?", NUMBERS[len(seen) - 1])]
    corner = rng.choice(list(CORNERS))
    asked.append((f"What is at the {corner}?",
                  "a {1} {0}".format(*seen[corner]) if corner in seen
                  else "nothing"))
    held = list(seen.values())
    for shape in SHAPES:
        if sum(s == shape for s, _ in held) == 1:
            asked.append((f"What colour is the {shape}?",
                          next(c for s, c in held if s == shape)))
    for colour in COLOURS:
        if sum(c == colour for _, c in held) == 1:
            asked.append((f"What shape is {colour}?",
                          next(s for s, c in held if c == colour)))
    if rng.random() < 0.5:
        asked.append(("Is there a {1} {0}?".format(*rng.choice(held)), "yes"))
    else:
        others = [(s, c) for s in SHAPES for c in COLOURS
                  if (s, c) not in held]
        asked.append(("Is there a {1} {0}?".format(*rng.choice(others)), "no"))
    return ", ".join("{1} {0}".format(*seen[c]) if c in seen else "nothing"
                     for c in CORNERS), asked


def chart(rng, draw, size):
    """Two to four bars on a line, of unlike heights and colours."""
    count = rng.randint(2, 4)
    colours = rng.sample(list(COLOURS), count)
    steps = rng.sample(range(2, 10), count)
    base = size * rng.uniform(0.85, 0.95)
    left, width = size * 0.08, size * 0.84 / count
    for i, (colour, step) in enumerate(zip(colours, steps)):
        x = left + i * width
        draw.rectangle((x + width * 0.15, base - step * size * 0.08,
                        x + width * 0.85, base), fill=COLOURS[colour])
    draw.line((size * 0.04, base, size * 0.96, base), fill=(0, 0, 0), width=2)
    order = sorted(zip(steps, colours))
    one, other = rng.sample(range(count), 2)
    return ", ".join(f"{c} {s}" for s, c in zip(steps, colours)), [
        ("Which bar is the tallest?", order[-1][1]),
        ("Which bar is the shortest?", order[0][1]),
        ("How many bars are there?", NUMBERS[count - 1]),
        (f"Is the {colours[one]} bar taller than the {colours[other]} one?",
         "yes" if steps[one] > steps[other] else "no")]


def word(rng, draw, size):
    """A word in letters of one colour."""
    text, colour = rng.choice(WORDS), rng.choice(list(COLOURS))
    font = ImageFont.load_default(size=size * rng.uniform(0.36, 0.42))
    x, y = (size * rng.uniform(0.42, 0.58) for _ in range(2))
    draw.text((x, y), text, fill=COLOURS[colour], font=font, anchor="mm",
              stroke_width=1)
    return f"{colour} " + " ".join(text), [
        ("Which word is written here?", text),
        ("What colour are the letters?", colour)]


def make(rng, path, size):
    grey = rng.randint(205, 255)
    picture = Image.new("RGB", (size, size), (grey, grey, grey))
    kind = rng.choice((shapes, chart, word))
    whole, asked = kind(rng, ImageDraw.Draw(picture), size)
    picture.save(path)
    return kind.__name__, (ALL, whole), rng.sample(asked, len(asked))


def record(kind, name, asked):
    messages = []
    for i, (question, answer) in enumerate(asked):
        mark = "<image>" if name and i == 0 else ""
        messages += [{"role": "user", "content": mark + question},
                     {"role": "assistant", "content": answer}]
    out = {"kind": kind, "messages": messages}
    return {**out, "images": [name]} if name else out


def conversations(rng, part, whole, asked):
    """That of all comes first in one of four: behind it others are told."""
    if part == "held_out":
        return [[a] for a in [whole] + asked[:3]]
    first = rng.random() < 0.25
    return [[whole] + asked[:2] if first else asked[:2] + [whole]]


def write_lines(out, name, records):
    with open(os.path.join(out, name), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(r) + "\n" for r in records)


def write(out, part, count, rng, size):
    seen, blind, captions = [], [], []
    for i in range(count):
        name = f"pictures/{part}_{i:05d}.png"
        kind, whole, asked = make(rng, os.path.join(out, name), size)
        captions.append(record(kind, name, [whole]))
        for c in conversations(rng, part, whole, asked):
            seen.append(record(kind, name, c))
            blind.append(record(kind, None, c))
    before = "" if part == "train" else f"{part}_"
    write_lines(out, f"{part}.jsonl", seen)
    write_lines(out, f"{before}blind.jsonl", blind)
    write_lines(out, f"{before}captions.jsonl", captions)
    print(f"{part}: {count} pictures, {len(seen)} conversations")
    return blind


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--train", type=int, default=24000)
    parser.add_argument("--held-out", type=int, default=400)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    os.makedirs(os.path.join(args.out, "pictures"), exist_ok=True)
    rng = random.Random(args.seed)
    texts = write(args.out, "train", args.train, rng, args.size)
    write(args.out, "held_out", args.held_out, rng, args.size)
    with open(os.path.join(args.out, "texts.txt"), "w",
              encoding="utf-8") as file:
        for conversation in texts:
            for message in conversation["messages"]:
                file.write(f"{message['role']}\n{message['content']}\n")


if __name__ == "__main__":
    main()
