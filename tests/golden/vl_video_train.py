#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty AdamW steps of transformers' Qwen2.5-VL, Qwen3-VL, LLaVA-OneVision,
GLM-4.1V and ERNIE 4.5 VL on texts, pictures and videos, from the engine's own
start.

  vl_video_train.py BUILD          writes qwen2_5_vl_video_train.txt,
                                   qwen3_vl_video_train.txt,
                                   llava_onevision_video_train.txt,
                                   two_encoders_video_train.txt,
                                   glm4v_video_train.txt and
                                   ernie4_5_vl_video_train.txt, as llava_train.py
  vl_video_train.py BUILD --check  computes again and compares

Models and pictures are those of qwen2_5_vl_train.py, qwen3_vl_train.py,
glm4v_train.py, ernie4_5_vl_train.py and llava_onevision_train.py (with patches of three a side, which
become two), the texts those of tests/train/texts_with_videos.sh. Frames are
PyAV's, without loss and at their own size; their numbers, the sizes, the
seconds of a row of patches and the times in a text are those of transformers'
video processors and of its processor of texts. GLM-4.1V's class takes no text that has both pictures and
videos, whose moments go to it as the pictures that they are. The last one is a
Qwen2.5-VL of which a tower of its own, with other sizes, reads the videos.
Wants torchvision and av beside the others.
"""
import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import types

import av
import numpy as np
import torch
import transformers
from PIL import Image
from transformers.models.llava_onevision.image_processing_pil_llava_onevision \
    import LlavaOnevisionImageProcessorPil
from transformers.models.llava_onevision.video_processing_llava_onevision \
    import LlavaOnevisionVideoProcessor
from transformers.models.ernie4_5_vl_moe.image_processing_pil_ernie4_5_vl_moe \
    import Ernie4_5_VLMoeImageProcessorPil
from transformers.models.ernie4_5_vl_moe.video_processing_ernie4_5_vl_moe \
    import Ernie4_5_VLMoeVideoProcessor
from transformers.models.glm4v.video_processing_glm4v import \
    Glm4vVideoProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import \
    Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.video_processing_qwen2_vl import \
    Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import \
    Qwen3VLVideoProcessor
from transformers.video_utils import VideoMetadata

import ernie4_5_vl_train
import llava_onevision_train as onevision
import glm4v_train
import llava_train
import qwen2_5_vl_train
import qwen2_vl_train as qwen2
import qwen3_vl_train

PICTURE, VIDEO, BEGIN, END = 1, 2, 3, 4
VOCAB = 34
BOUNDS = {"qwen2_5_vl": dict(shortest_edge=64, longest_edge=384),
          "qwen3_vl": dict(shortest_edge=128, longest_edge=4096),
          "glm4v": dict(shortest_edge=128, longest_edge=4096),
          "ernie4_5_vl": dict(shortest_edge=64, longest_edge=384)}
FPS = {"qwen2_5_vl": 2.0, "qwen3_vl": 1.5, "glm4v": 1.5, "ernie4_5_vl": 1.8}
KINDS = {"qwen2_5_vl": Qwen2VLVideoProcessor,
         "qwen3_vl": Qwen3VLVideoProcessor,
         "llava_onevision": LlavaOnevisionVideoProcessor,
         "glm4v": Glm4vVideoProcessor,
         "ernie4_5_vl": Ernie4_5_VLMoeVideoProcessor}
SIDE, FRAMES = 12, 3
PINS = [[12, 12], [36, 36], [72, 36], [24, 24]]
TILES = dict(size=dict(height=SIDE, width=SIDE), image_grid_pinpoints=PINS)
TWO = "two_encoders"
OF_TOWER = [("image_encoder", "video_encoder"),
            ("image_projector", "video_projector")]
# Behind the letters of the tokenizer.
TOKENS = {"glm4v": ["<|begin_of_image|>", "<|end_of_image|>"]}
MODULES = {"qwen2_5_vl": qwen2_5_vl_train, "qwen3_vl": qwen3_vl_train,
           "llava_onevision": onevision, "glm4v": glm4v_train,
           "ernie4_5_vl": ernie4_5_vl_train}


def vocab_of(name):
    return VOCAB + len(TOKENS.get(name, []))


def settings_of(name):
    """Of how many frames are taken; GLM-4.1V's are so many a second."""
    return {} if name == "glm4v" else dict(
        min_frames=2, max_frames=8,
        **(dict(draw_on_frames=False) if name == "ernie4_5_vl" else {}))


def processor_of(name):
    return KINDS[name](size=BOUNDS[name], fps=FPS[name], do_sample_frames=True,
                       **({} if name in ("glm4v", "ernie4_5_vl") else
                          dict(cap_pixels_per_frame=False)),
                       **settings_of(name), **qwen2.CUT)


def write(place, name, letters=""):
    subprocess.run(
        ["bash", "-c", '. "$0/tests/train/texts_with_videos.sh"; '
         'write_videos "$0" "$@"', llava_train.SOURCE, place,
         *TOKENS.get(name, letters)], check=True)
    keys = (MODULES[name] if name in ("glm4v", "ernie4_5_vl") else
            qwen2).prepare(place)
    if name == "llava_onevision":
        return keys + write_onevision(place)
    path = os.path.join(place, "video_preprocessor_config.json")
    with open(path, "w") as f:
        json.dump(dict(video_processor_type=KINDS[name].__name__,
                       size=BOUNDS[name], fps=FPS[name], do_sample_frames=True,
                       **settings_of(name), **qwen2.CUT), f)
    return keys + [f"data.video_processor={path}",
                   f"model.foundation.vocab_size={vocab_of(name)}",
                   "model.foundation.max_position_embeddings=96",
                   "data.seq_length=96", "data.max_images=4",
                   "data.max_patches=160", "train.global_batch_size=8",
                   *(["data.vision_token_ids=[1,2,4]"]
                     if name == "ernie4_5_vl" else []),
                   f"data.chat.cache={place}/cache"]


def write_onevision(place):
    pictures, videos = (os.path.join(place, name + ".json")
                        for name in ("pictures", "videos"))
    with open(pictures, "w") as f:
        json.dump(dict(image_processor_type="LlavaOnevisionImageProcessor",
                       **TILES), f)
    with open(videos, "w") as f:
        json.dump(dict(video_processor_type="LlavaOnevisionVideoProcessor",
                       size=TILES["size"], num_frames=FRAMES,
                       do_sample_frames=True), f)
    return [f"data.image_processor={pictures}",
            f"data.video_processor={videos}",
            f"model.image_encoder.image_size={SIDE}",
            f"model.foundation.vocab_size={VOCAB}",
            "model.foundation.max_position_embeddings=128",
            "data.seq_length=128", "data.max_images=4", "data.max_patches=360",
            "train.global_batch_size=8", f"data.chat.cache={place}/cache"]


def values_of(frames, mean, deviation):
    """As the library has them: rescaled in 64 bits, the rest in 32."""
    found = np.float32(frames * (1 / 255.0))
    return (found - np.float32(mean)) / np.float32(deviation)


def read_video(path, name):
    """Patches, grid, seconds of a row of patches, and times of the rows."""
    processor = processor_of(name)
    with av.open(path) as container:
        rate = float(container.streams.video[0].average_rate)
        frames = np.stack([f.to_ndarray(format="rgb24")
                           for f in container.decode(video=0)])
    metadata = VideoMetadata(total_num_frames=len(frames), fps=rate,
                             duration=len(frames) / rate)
    indices = np.asarray(processor.sample_frames(
        metadata, **(dict(fps=FPS[name]))))
    if name == "ernie4_5_vl":  # frames, of which two become a row
        out = processor(videos=[torch.from_numpy(frames[indices].transpose(
            0, 3, 1, 2).copy())], do_sample_frames=False, do_rescale=False,
            do_normalize=False, return_tensors="pt")
        patches = out["pixel_values_videos"].numpy().astype(np.float64)
        values = values_of(patches.reshape(len(patches), 3, -1),
                           *(np.reshape(v, (3, 1)) for v in (
                               processor.image_mean, processor.image_std)))
        return (torch.from_numpy(values.reshape(patches.shape)).double(),
                out["video_grid_thw"][0].tolist(), 0.0, [])
    metadata.frames_indices = indices
    own = torch.from_numpy(frames[indices].transpose(0, 3, 1, 2).copy())
    resized = processor.resize(own[None], transformers.image_utils.SizeDict(
        **BOUNDS[name]), 3, 8, 2)[0]
    assert torch.equal(resized, own), "the fixtures keep their sizes"
    values = values_of(own.numpy().transpose(0, 2, 3, 1),
                       processor.image_mean, processor.image_std)
    patches, *grid = processor.patchify(
        torch.from_numpy(values.transpose(0, 3, 1, 2).copy())[None], 4, 2, 2)
    if name == "glm4v":
        return patches[0].double(), grid, 0.0, metadata.timestamps[::2]
    times = Qwen3VLProcessor._calculate_timestamps(None, indices, rate, 2)
    return patches[0].double(), grid, 2 / metadata.sampled_fps, times


def read_plain(path):
    """Pixels of the frames, [frames, 3, side, side]."""
    processor = LlavaOnevisionVideoProcessor(size=TILES["size"])
    with av.open(path) as container:
        frames = np.stack([f.to_ndarray(format="rgb24")
                           for f in container.decode(video=0)])
    indices = processor.sample_frames(
        VideoMetadata(total_num_frames=len(frames)), num_frames=FRAMES)
    own = torch.from_numpy(frames[indices].transpose(0, 3, 1, 2).copy())
    resized = processor.resize(own, transformers.image_utils.SizeDict(
        **TILES["size"]), processor.resample)
    values = values_of(resized.numpy().transpose(0, 2, 3, 1),
                       processor.image_mean, processor.image_std)
    return torch.from_numpy(values.transpose(0, 3, 1, 2).copy()).double()


def onevision_samples(place):
    model = model_of("llava_onevision")
    with open(os.path.join(place, "tokenizer.json")) as f:
        vocab = json.load(f)["model"]["vocab"]
    pictures = LlavaOnevisionImageProcessorPil(**TILES)
    with open(os.path.join(place, "texts.jsonl")) as f:
        records = [json.loads(line) for line in f]
    for record in records:
        images = [Image.open(os.path.join(place, file)).convert("RGB")
                  for file in record.get("images", [])]
        videos = record.get("videos", [record["video"]] if "video" in record
                            else [])
        extra, rows = {}, iter(())
        if images:
            extra = dict(pictures([images], return_tensors="pt"))
            extra["pixel_values"] = extra["pixel_values"].double()
            rows = iter(onevision.counts(model,
                                         extra["image_sizes"].tolist()))
        if videos:
            extra["pixel_values_videos"] = torch.stack(
                [read_plain(os.path.join(place, file)) for file in videos])
        ids, learned = [], []
        for part in record["text"].replace("<picture>", "\0").replace(
                "<video>", "\1"):
            count = next(rows) if part == "\0" else \
                4 * FRAMES + 1 if part == "\1" else 1
            token = {"\0": PICTURE, "\1": VIDEO}.get(part)
            ids += [vocab[part] if token is None else token] * count
            learned += [token is None] * count
        yield torch.tensor([ids]), extra, torch.tensor(learned[1:])


def samples(place, name):
    if name == "llava_onevision":
        yield from onevision_samples(place)
        return
    with open(os.path.join(place, "tokenizer.json")) as f:
        vocab = json.load(f)["model"]["vocab"]
    pictures = glm4v_train.processor() if name == "glm4v" else \
        Ernie4_5_VLMoeImageProcessorPil(
            size=qwen2.PIXELS, **ernie4_5_vl_train.CUT) \
        if name == "ernie4_5_vl" else \
        Qwen2VLImageProcessorPil(size=qwen2.PIXELS, **qwen2.CUT)
    with open(os.path.join(place, "texts.jsonl")) as f:
        records = [json.loads(line) for line in f]
    for record in records:
        images = [Image.open(os.path.join(place, file)).convert("RGB")
                  for file in record.get("images", [])]
        videos = record.get("videos", [record["video"]] if "video" in record
                            else [])
        found = pictures(images, return_tensors="np") if images else {}
        grids = iter(found.get("image_grid_thw", []))
        read = [read_video(os.path.join(place, file), name) for file in videos]
        left = iter(read)
        ids, learned, kinds = [], [], []

        def put(tokens, learns, kind=0):
            ids.extend(tokens)
            learned.extend([learns] * len(tokens))
            kinds.extend([kind] * len(tokens))

        for part in record["text"].replace("<picture>", "\0").replace(
                "<video>", "\1"):
            if part == "\0":
                put([PICTURE] * int(np.prod(next(grids)) // 4), False, 1)
            elif part == "\1":
                _, (t, h, w), _, times = next(left)
                if name == "qwen2_5_vl":
                    put([VIDEO] * (t * h * w // 4), False, 2)
                    continue
                if name == "ernie4_5_vl":
                    put([VIDEO] * (t * h * w // 8), False, 2)
                for moment in times if name == "glm4v" else []:
                    put([vocab["<|begin_of_image|>"]], False)
                    put([PICTURE] * (h * w // 4), False, 2)
                    put([vocab["<|end_of_image|>"]], False)
                    put([vocab[c] for c in str(int(moment))], False)
                for moment in times if name == "qwen3_vl" else []:
                    put([vocab[c] for c in f"<{moment:.1f} seconds>"], False)
                    put([BEGIN], False)
                    put([VIDEO] * (h * w // 4), False, 2)
                    put([END], False)
            else:
                put([vocab[part]], True)
        extra = {}
        if images:
            extra.update(
                pixel_values=torch.from_numpy(found["pixel_values"]).double(),
                image_grid_thw=torch.from_numpy(found["image_grid_thw"]))
        if read:
            extra.update(
                pixel_values_videos=torch.cat([r[0] for r in read]),
                video_grid_thw=torch.tensor([r[1] for r in read]))
            if name == "qwen2_5_vl":
                extra["second_per_grid_ts"] = torch.tensor(
                    [r[2] for r in read], dtype=torch.float32)
        if name == "glm4v" and images and read:
            extra = as_pictures(record["text"], found, read)
            kinds = [min(kind, 1) for kind in kinds]
        if name == "ernie4_5_vl":
            extra.update(ernie4_5_vl_train.types_of(
                torch.tensor([ids]), (PICTURE, VIDEO)))
        elif extra:
            extra["mm_token_type_ids"] = torch.tensor([kinds])
        yield torch.tensor([ids]), extra, torch.tensor(learned[1:])


def as_pictures(text, found, read):
    """Pictures and the moments of videos in the order of the text."""
    pixels, grids, at = [], [], 0
    own, videos = iter(found["image_grid_thw"].tolist()), iter(read)
    for kind in re.findall("<picture>|<video>", text):
        if kind == "<picture>":
            grids.append(next(own))
            count = int(np.prod(grids[-1]))
            pixels.append(torch.from_numpy(
                found["pixel_values"][at:at + count]).double())
            at += count
        else:
            patches, (t, h, w), _, _ = next(videos)
            grids += [[1, h, w]] * t
            pixels.append(patches)
    return dict(pixel_values=torch.cat(pixels),
                image_grid_thw=torch.tensor(grids))


def model_of(name):
    if name == "llava_onevision":
        return onevision.make(VOCAB, 128, SIDE, PINS, video_token_index=VIDEO)
    if name == "glm4v":
        return glm4v_train.make(dict(
            glm4v_train.TEXT, vocab_size=vocab_of(name),
            max_position_embeddings=96), video_token_id=VIDEO)
    if name == "ernie4_5_vl":
        return ernie4_5_vl_train.make(
            VIDEO, vocab_size=VOCAB, max_position_embeddings=96)
    text = dict(qwen2.TEXT, vocab_size=VOCAB, max_position_embeddings=96)
    ids = dict(image_token_id=PICTURE, video_token_id=VIDEO,
               vision_start_token_id=BEGIN, vision_end_token_id=END,
               tie_word_embeddings=False)
    if name == "qwen2_5_vl":
        config = transformers.Qwen2_5_VLConfig(
            vision_config=dict(
                depth=3, hidden_size=16, out_hidden_size=24, num_heads=2,
                intermediate_size=20, patch_size=4, spatial_merge_size=2,
                temporal_patch_size=2, window_size=16,
                fullatt_block_indexes=[1]), text_config=text, **ids)
        kind = transformers.Qwen2_5_VLForConditionalGeneration
    else:
        config = transformers.Qwen3VLConfig(
            vision_config=qwen3_vl_train.VISION,
            text_config=dict(text, num_hidden_layers=3, head_dim=6), **ids)
        kind = transformers.Qwen3VLForConditionalGeneration
    with llava_train.wide.widened():
        return kind._from_config(
            config, attn_implementation="eager").double().eval()


def add_tower():
    """A Qwen2.5-VL whose videos go through a tower of their own."""
    model = model_of("qwen2_5_vl")
    inner = model.model
    config = copy.deepcopy(model.config.vision_config)
    config.depth, config.hidden_size, config.intermediate_size = 2, 8, 12
    config.window_size, config.fullatt_block_indexes = 8, [0]
    with llava_train.wide.widened():
        inner.videos = type(inner.visual)._from_config(
            config, attn_implementation="eager").double().eval()
    features = inner.get_video_features

    def of_videos(*args, **kwargs):
        pictures, inner.visual = inner.visual, inner.videos
        try:
            return features(*args, **kwargs)
        finally:
            inner.visual = pictures

    inner.get_video_features = of_videos
    return model


def load_towers(model, params):
    """Both towers' parameters, each by the names of one."""
    second = {}
    for name, value in params.items():
        for of, to in OF_TOWER:
            if name.startswith(to):
                second[name.replace(to, of)] = value
    first = {k: v for k, v in params.items() if not k.startswith("video_")}
    missing = [key for key in qwen2_5_vl_train.load(model, first)
               if not key.startswith("model.videos.")]
    return missing + qwen2_5_vl_train.load(
        model.model.videos, second,
        [(r"^", "model.visual.")] + qwen2.NAMES)


def run(name):
    base = "qwen2_5_vl" if name == TWO else name
    own = MODULES[base]
    of = types.SimpleNamespace(make=lambda: model_of(name), load=own.load)
    if name == TWO:
        of = types.SimpleNamespace(make=add_tower, load=load_towers)
    file = os.path.join(llava_train.HERE, name + "_video_train.txt")
    with tempfile.TemporaryDirectory() as place:
        keys = write(place, base)
        if name == TWO:
            keys += ["data.max_videos=4", "data.max_video_patches=160"]
        params = llava_train.start(sys.argv[1], place, name + "_train", keys,
                                   source="chat")
        batches = [list(samples(place, base))] * llava_train.STEPS
    lines = llava_train.train(of, params, batches)
    if "--check" not in sys.argv[1:]:
        with open(file, "w") as f:
            f.writelines(f"{a!r} {b!r}\n" for a, b in lines)
        return 0.0
    return np.max(np.abs(np.array(lines) - np.loadtxt(file)))


def main():
    names = [name for name in (*KINDS, TWO) if name in sys.argv]
    worst = max(run(name) for name in names or (*KINDS, TWO))
    print(f"{worst:.1e}")
    sys.exit(int(worst > 1e-10))


if __name__ == "__main__":
    main()
