#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""corpus.py PREFIX TOKENS: an indexed data set of made-up text, the same on
every machine, of which is known how well it can be predicted.

A text is a row of words, each drawn by itself, the r-th commonest with a
probability of 1 / r. A word is 3 to 8 ids out of a vocabulary of 49152. The
first id of a word is no other word's and no later one's, so that words are
known by their beginning and the entropy of a token is that of a word over its
mean length: no model can come below it on text that it sees for the first time.
"""
import array
import math
import sys

VOCAB, WORDS, SHORTEST, LONGEST = 49152, 2000, 3, 8
DOCUMENT = 500  # words
MASK = (1 << 64) - 1


class Draw:
    """A linear congruential generator of 64 bits, by its upper half."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005
                      + 1442695040888963407) & MASK
        return (self.state >> 32) * n >> 32


def make_words():
    draw = Draw(1)
    spread = 12289  # coprime to VOCAB: ids of a class lie all over it
    words = []
    for i in range(WORDS):
        size = SHORTEST + draw.below(LONGEST - SHORTEST + 1)
        later = [(WORDS + draw.below(VOCAB - WORDS)) * spread % VOCAB
                 for _ in range(size - 1)]
        words.append([i * spread % VOCAB] + later)
    return words


def weights():
    """Whole numbers, so that every machine draws the same words."""
    return [10 ** 9 // (i + 1) for i in range(WORDS)]


def bounds():
    """Entropy of a token in nats, knowing the words; of its frequency alone;
    the standard deviation of a word's; words a token."""
    words, total = make_words(), sum(weights())
    shares = [w / total for w in weights()]
    length = sum(p * len(w) for p, w in zip(shares, words))
    of_word = -sum(p * math.log(p) for p in shares)
    spread = math.sqrt(sum(p * math.log(p) ** 2 for p in shares)
                       - of_word ** 2)
    counts = {}
    for p, word in zip(shares, words):
        for token in word:
            counts[token] = counts.get(token, 0.0) + p / length
    alone = -sum(p * math.log(p) for p in counts.values())
    return of_word / length, alone, spread, 1.0 / length


def documents(tokens):
    """Lists of ids, `tokens` in all."""
    words, draw, ends, end = make_words(), Draw(2), [], 0
    for w in weights():
        end += w
        ends.append(end)
    while tokens > 0:
        text = []
        for _ in range(DOCUMENT):
            at, low, high = draw.below(1 << 32) * end >> 32, 0, WORDS - 1
            while low < high:
                middle = (low + high) // 2
                low, high = (low, middle) if at < ends[middle] \
                    else (middle + 1, high)
            text += words[low]
        text = text[:tokens]
        tokens -= len(text)
        yield text


def write(prefix, tokens):
    sizes = []
    with open(prefix + ".bin", "wb") as f:
        for text in documents(tokens):
            ids = array.array("H", text)
            if sys.byteorder == "big":
                ids.byteswap()
            ids.tofile(f)
            sizes.append(len(text))
    with open(prefix + ".idx", "wb") as f:
        def put(size, *values):
            for value in values:
                f.write(value.to_bytes(size, "little"))
        f.write(b"MMIDIDX\0\0")
        put(8, 1)  # version
        put(1, 8)  # uint16
        put(8, len(sizes), len(sizes) + 1)
        put(4, *sizes)
        put(8, *(2 * sum(sizes[:i]) for i in range(len(sizes))))
        put(8, *range(len(sizes) + 1))


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit(__doc__.split("\n", 1)[0])
    write(sys.argv[1], int(sys.argv[2]))
