# SPDX-License-Identifier: Apache-2.0
"""Tar shards against megatron-energon (PyPI megatron-energon, webdataset).

usage: energon.py BUILD

1. `loong-data webdataset` writes conversations with pictures and a video;
   megatron-energon reads the directory: its samples are the records, in order,
   with the bytes of the files that these name; its own preparation of the same
   shards finds the same counts and the same index.
2. megatron-energon prepares shards that webdataset wrote: captions, questions
   with answers (json[...], several endings for a field), and crude ones. What
   loong-data makes of them (ids, and which are learned) is what it makes of
   conversations in JSON lines that are made from the samples as
   megatron-energon reads them.
3. Metadatasets that are drawn (blends by weight and by repetitions, of parts
   and of other metadatasets) give the shares and numbers of samples that
   megatron-energon gives their data sets.
4. Names with braces in split.yaml are what braceexpand, which megatron-energon
   calls, makes of them, or are refused.
"""
import json
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import braceexpand
import webdataset
import yaml
from megatron.energon import WorkerConfig
from megatron.energon.dataset_config import get_dataset_from_config
from megatron.energon.epathlib import EPath
from megatron.energon.metadataset.loader import load_dataset
from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PICTURES = SOURCE / "tests/fixtures/images"
VIDEOS = SOURCE / "tests/fixtures/videos"
MODEL = SOURCE / "tests/golden/vl_chat/llava"
NAMES = ["rgb.png", "j420.jpg", "tall.jpg"]


def check(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: found {found!r}, wanted {wanted!r}")


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stderr}")
    return done.stdout


def ids(build, cache, path):
    """Lines of ids, with + before those that are learned, by sample."""
    text = run(build / "loong-data", "chat", "inspect", "--tokenizer", MODEL,
               "--image-token", "<image>", "--cache", cache, "--ids",
               "--count", 999, path)
    samples = re.split(r"^.*: \d+ tokens, \d+ learned$", text, flags=re.M)[1:]
    return [re.findall(r"^(?:\+| ) +\d+ |, \d+ x \d+$", s, flags=re.M)
            for s in samples]


def read(path, part="train", raw=True):
    """All samples of a part, in order."""
    worker = WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = get_dataset_from_config(
        EPath(str(path)), split_part=part, training=False, worker_config=worker,
        **({"decoder": None} if raw else {})).build()
    worker.worker_activate(sample_index=0)
    samples = list(dataset)
    worker.worker_deactivate()
    return samples


def talk(texts, names, draw):
    """A record with all its pictures as markers, as parts, or both."""
    parts = []
    listed = []
    for name in names:
        if draw.random() < 0.5:
            parts.append({"type": "image", "image": str(PICTURES / name)})
        else:
            parts.append({"type": "image"})
            listed.append(str(PICTURES / name))
    parts.append({"type": "text", "text": texts[0]})
    record = {"messages": [{"role": "user", "content": parts},
                           {"role": "assistant", "content": texts[1]}]}
    if listed:
        record["images"] = listed
    return record


def paths_of(value):
    """Paths in the order in which they stand in a record."""
    found = []
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("image", "images", "video", "videos"):
                found += [inner] if isinstance(inner, str) else inner
            else:
                found += paths_of(inner)
    elif isinstance(value, list):
        for inner in value:
            found += paths_of(inner)
    return found


def check_written(build, place):
    draw = random.Random(1)
    records = [talk((f"What is {i}?", f"It is {i * i}."),
                    draw.choices(NAMES, k=draw.randrange(4)), draw)
               for i in range(40)]
    records.append({"messages": [
        {"role": "user", "content": [{"type": "video", "video": str(VIDEOS / "h264.mp4")}]},
        {"role": "assistant", "content": "A film."}]})
    (place / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    out = place / "ours"
    run(build / "loong-data", "webdataset", "--out", out, "--maxcount", 16,
        "--split", "train=0.7,val=0.3", place / "a.jsonl")
    samples = read(out) + read(out, "val")
    check("samples", len(samples), len(records))
    for record, sample in zip(records, samples):
        own = json.loads(sample["json"])
        wanted = [pathlib.Path(p).read_bytes() for p in paths_of(record)]
        named = [n.split(".", 1)[1] for n in paths_of(own)]
        check("bytes", [bytes(sample[n]) for n in named], wanted)
        check("members", sorted(k for k in sample if k[0] != "_" and k != "json"),
              sorted(named))
        text = json.dumps(record)
        for path, name in zip(paths_of(record), paths_of(own)):
            text = text.replace(json.dumps(path), json.dumps(name), 1)
        check("record", json.loads(text), own)
    # Its own preparation says the same.
    other = place / "prepared"
    shutil.copytree(out, other)
    shutil.rmtree(other / ".nv-meta")
    shards = sorted(p.name for p in other.glob("*.tar"))
    before = {p.name: p.read_bytes() for p in other.glob("*.idx")}
    prepare(other, shards, {"__module__": "megatron.energon",
                            "__class__": "CrudeWebdataset"})
    for name, data in before.items():
        check(name, struct.unpack(f"<{len(data) // 8}Q", data),
              struct.unpack(f"<{len(data) // 8}Q", (other / name).read_bytes()))
    check("counts", yaml.safe_load((out / ".nv-meta/.info.yaml").read_text())["shard_counts"],
          json.loads((other / ".nv-meta/.info.json").read_text())["shard_counts"])
    return len(records)


def prepare(path, shards, config):
    WebdatasetPreparator.prepare_dataset(
        path, shards, split_parts_ratio=[("train", 0.8), ("val", 0.2), ("test", 0)],
        workers=1)
    (path / ".nv-meta/dataset.yaml").write_text(yaml.safe_dump(config))


def sample_type(name, fields):
    return {"sample_type": {"__module__": "megatron.energon", "__class__": name},
            "field_map": fields}


def question(text, answer, picture):
    return {"messages": [
        {"role": "user", "content": [{"type": "image", "image": picture},
                                     {"type": "text", "text": text}]},
        {"role": "assistant", "content": answer}]}


def check_read(build, place, name, config, make, convert):
    """`make` a sample's members by its number, `convert` what energon reads."""
    path = place / name
    path.mkdir()
    with webdataset.ShardWriter(str(path / "part-%02d.tar"), maxcount=5,
                                verbose=0) as sink:
        for i in range(25):
            sink.write({"__key__": f"sub/{i:04d}", **make(i)})
    shards = sorted(p.name for p in path.glob("*.tar"))
    prepare(path, shards, config)
    split = yaml.safe_load((path / ".nv-meta/split.yaml").read_text())
    split["exclude"] = ["part-01.tar", "part-03.tar/sub/0016"]
    (path / ".nv-meta/split.yaml").write_text(yaml.safe_dump(split))
    raw = read_crude(path)
    lines = []
    for i, sample in enumerate(read(path, raw=False)):
        picture = place / f"{name}{i}.bin"
        parts = raw[i]
        data = next(parts[k] for k in ("jpg", "png") if k in parts)
        picture.write_bytes(data)
        lines.append(json.dumps(convert(sample, str(picture))) + "\n")
    (place / f"{name}.jsonl").write_text("".join(lines))
    cache = place / "cache"
    found = ids(build, cache, path)
    check(f"samples of {name}", len(found), len(lines))
    check(name, found, ids(build, cache, place / f"{name}.jsonl"))
    return len(lines)


def read_crude(path):
    """The members of the same samples."""
    config = path / ".nv-meta/dataset.yaml"
    text = config.read_text()
    config.write_text("__module__: megatron.energon\n__class__: CrudeWebdataset\n")
    samples = read(path)
    config.write_text(text)
    return samples


def braces(draw, depth=0):
    """A random name with ranges and lists."""
    ends = draw.choice([("0", "00", "1", "-1", "007", "10", "-03", "-0"), "aAzZdM"])
    parts = draw.choices(["x", "/0", "range", "list"], k=draw.randrange(1, 4))
    for i, part in enumerate(parts):
        if part == "range":
            step = draw.choice(["", "..2", "..0", "..-3"])
            parts[i] = f"{{{draw.choice(ends)}..{draw.choice(ends)}{step}}}"
        elif part == "list":
            inner = [braces(draw, depth + 1) if depth < 2 else draw.choice(["", "y"])
                     for _ in range(draw.randrange(2, 4))]
            parts[i] = f"{{{','.join(inner)}}}"
    return "".join(parts)


def check_braces(build, place):
    """By what is told of excluded names that are no shards."""
    path = place / "braces"
    (path / ".nv-meta").mkdir(parents=True)
    (path / ".nv-meta/dataset.yaml").write_text("__class__: CrudeWebdataset\n")
    (path / ".nv-meta/.info.json").write_text('{"shard_counts": {"s.tar": 1}}')
    with webdataset.TarWriter(str(path / "s.tar")) as sink:
        sink.write({"__key__": "0", "json": [{"role": "user", "content": "a"},
                                             {"role": "assistant", "content": "b"}]})
    draw = random.Random(3)
    names = [braces(draw) for _ in range(200)]
    names = [n for n in names if len(list(braceexpand.braceexpand(n))) < 1000]
    (path / ".nv-meta/split.json").write_text(json.dumps(
        {"split_parts": {"train": ["s.tar"]}, "exclude": names}))
    done = subprocess.run(
        [build / "loong-data", "chat", "inspect", "--tokenizer", MODEL,
         "--cache", place / "cache", path], capture_output=True, text=True)
    check("rc", (done.returncode, done.stderr if done.returncode else ""), (0, ""))
    found = re.findall("nv-meta: '(.*)', which is excluded, is no shard",
                       done.stdout + done.stderr)
    check("names", found, [one for n in names for one in braceexpand.braceexpand(n)])
    for name in ("{a}", "{a..0}", "a{0..1", "a}", "\\\\{0..1}"):
        (path / ".nv-meta/split.json").write_text(json.dumps(
            {"split_parts": {"train": [name]}}))
        done = subprocess.run(
            [build / "loong-data", "chat", "inspect", "--tokenizer", MODEL, path],
            capture_output=True, text=True)
        check(name, "braces are ranges" in done.stderr, True)
    return len(found)


def draw_metadataset(draw, place, depth, epochized):
    """Writes one; its path."""
    path = place / f"meta{len(list(place.glob('meta*')))}.yaml"
    path.write_text("")
    blend = []
    for _ in range(draw.randint(1, 3)):
        one = {"path": draw.choice(["one", "two"])}
        if depth > 0 and draw.random() < 0.5:
            one["path"] = draw_metadataset(draw, place, depth - 1, epochized).name
        if draw.random() < 0.7:
            one.update({"repetitions": draw.choice([1, 2, 0.5])} if epochized
                       else {"weight": draw.choice([1, 0.25, 3])})
        if draw.random() < 0.3:
            one["subset"] = {"range": list(draw.choice([("0%", "50%"), ("25%", "100%")]))}
        if draw.random() < 0.3:
            one["split_part"] = "val"
        blend.append(one)
    key = "blend_epochized" if epochized else "blend"
    path.write_text(yaml.safe_dump({
        "__module__": "megatron.energon", "__class__": "MetadatasetV2",
        "splits": {"train": {key: blend},
                   "val": {key: json.loads(json.dumps(blend))}}}))
    return path


def check_metadatasets(build, place):
    place.mkdir()
    worker = WorkerConfig(rank=0, world_size=1, num_workers=0)
    records = [{"messages": [{"role": "user", "content": f"{i}"},
                             {"role": "assistant", "content": "b"}]} for i in range(60)]
    jsonl = place / "texts.jsonl"
    jsonl.write_text("".join(json.dumps(r) + "\n" for r in records))
    for name in ("one", "two"):
        run(build / "loong-data", "webdataset", "--out", place / name, "--maxcount", 10,
            "--split", "train=0.7,val=0.3", jsonl)
        # megatron-energon opens only what it has indexed itself
        WebdatasetPreparator.prepare_dataset(
            EPath(str(place / name)),
            sorted(p.name for p in (place / name).glob("*.tar")),
            split_parts_ratio=[("train", 0.7), ("val", 0.3)], shuffle_seed=None,
            workers=1)
    draw = random.Random(7)
    for k in range(12):
        path = draw_metadataset(draw, place, 2, k % 2 == 1)
        wanted = load_dataset(path).get_datasets(
            training=True, split_part="train", worker_config=worker)
        of = []
        for d in wanted.datasets:
            count = len(d.dataset)
            if d.dataset.subset is not None:
                begin, end = d.dataset.subset.compute_subset(count)
                count = end - begin
            of.append((d.dataset.path.name, count,
                       count * d.repetitions if k % 2 else d.weight))
        whole = sum(w for _, _, w in of)
        wanted = [(n, c, f"{100 * w / whole:.1f}") for n, c, w in of]
        text = run(build / "loongrun", SOURCE / "tests/golden/vl_chat/start.yaml",
                   f"data.tokenizer={MODEL}", f"data.train=[{path}]", "~export",
                   f"data.chat.cache={place / 'cache'}", "--check")
        found = [(n.split("/")[-1], int(c), s) for s, n, c in re.findall(
            r"^ +([0-9.]+) % (.*): ([0-9]+) samples", text, flags=re.M)]
        check(path.read_text(), found, wanted)
    return 12


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        count = check_written(build, place)
        data = [(PICTURES / n).read_bytes() for n in NAMES]
        names = check_braces(build, place)
        blends = check_metadatasets(build, place / "mixes")
        picture = lambda i: {NAMES[i % 3][-3:]: data[i % 3]}
        count += check_read(
            build, place, "captions",
            sample_type("CaptioningSample", {"image": "png,jpg", "caption": "txt"}),
            lambda i: {**picture(i), "txt": f"Number {i}, caf\u00e9."},
            lambda s, p: question("", s.caption, p))
        count += check_read(
            build, place, "questions",
            sample_type("VQASample", {
                "image": "jpg,png", "context": "json[q][0]",
                "answers": "json[a]", "answer_weights": "json[w]"}),
            lambda i: {**picture(i), "json": {
                "q": [f"What is {i}?"], "a": ["x", f"y{i}", "z"],
                "w": [0.1, 0.5 + i % 2, 0.5]}},
            lambda s, p: question(
                s.context, s.answers[list(s.answer_weights).index(max(s.answer_weights))], p))
        count += check_read(
            build, place, "crude",
            {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"},
            lambda i: {**picture(i), "json": {"conversations": [
                {"from": "human", "value": f"<image>And {i}?"},
                {"from": "gpt", "value": "So."}]}},
            lambda s, p: {**(s["json"] if isinstance(s["json"], dict)
                             else json.loads(s["json"])), "images": [p]})
    print(f"{count} samples are the same to megatron-energon and here, "
          f"{blends} metadatasets too, {names} names to braceexpand")


if __name__ == "__main__":
    main()
