#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Conversations with pictures and videos against transformers' processors.

  vl_video_chat.py            writes vl_chat/video_ids.txt: ids of the record of
                              vl_chat/videos.jsonl as Qwen2.5-VL's, Qwen3-VL's,
                              InternVL's, LLaVA-OneVision's, GLM-4.1V's,
                              ERNIE 4.5 VL's and MiniCPM-V 4.6's
                              processors have them, each run
                              of one token that stands for a picture or a
                              video as one
  vl_video_chat.py --check    computes again and compares

Templates and tokenizers are those of vl_chat.py, videos and their processors
those of tests/fixtures/videos. Wants torchvision and av beside the others.
"""
import json
import os
import sys
import tempfile

import torch
import transformers
from PIL import Image
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import \
    GotOcr2ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import \
    Qwen2VLImageProcessorPil

import vl_chat

sys.path.insert(0, os.path.join(vl_chat.SOURCE, "tests/oracle"))
import videos  # noqa: E402

VIDEOS = os.path.join(vl_chat.SOURCE, "tests/fixtures/videos")
FILES = ["h264.mp4", "mpeg4.avi"]
RECORD = dict(
    messages=[
        dict(role="user", content=[
            dict(type="text", text="Look:"),
            dict(type="video", video="../videos/h264.mp4"),
            dict(type="text", text="and <image> then <video>What?")]),
        dict(role="assistant", content="A square.")],
    images=["rgb.png"], videos=["../videos/mpeg4.avi"])
MESSAGES = [
    vl_chat.SAY("user", vl_chat.TEXT("Look:"), dict(type="video"),
                vl_chat.TEXT("and "), dict(type="image"),
                vl_chat.TEXT(" then "), dict(type="video"),
                vl_chat.TEXT("What?")),
    vl_chat.SAY("assistant", vl_chat.TEXT("A square."))]
# The class, the family of vl_chat.py, how frames are chosen.
KINDS = [("Qwen2VL", "qwen2_vl", dict(fps=5)),
         ("Qwen3VL", "qwen2_vl", dict(fps=5)),
         ("InternVL", "internvl", dict(num_frames=4)),
         ("LlavaOnevision", "llava_onevision", dict(num_frames=4)),
         ("Glm4v", "glm4v", dict(fps=5)),
         (videos.ERNIE, "ernie4_5_vl", dict(fps=5)),
         (videos.SLICES, "minicpmv4_6", {})]
SLICED = dict(patch_size=2, scale_resolution=24, max_slice_nums=4)


def processor(kind, name, tokenizer):
    if kind == "InternVL":
        return transformers.InternVLProcessor(
            GotOcr2ImageProcessorPil(size=dict(height=56, width=56),
                                     max_patches=1),
            tokenizer, videos.InternVLVideoProcessor(**videos.INTERNVL),
            image_seq_length=4, chat_template=vl_chat.INTERNVL)
    if kind == videos.ERNIE:
        return vl_chat.ernie(tokenizer, videos.CLASSES[kind](**videos.ERNIES))
    if kind == videos.SLICES:
        return vl_chat.minicpm(
            tokenizer, videos.MiniCPMV4_6VideoProcessor(**SLICED))
    if kind == "LlavaOnevision":
        return vl_chat.onevision(
            tokenizer, videos.LlavaOnevisionVideoProcessor(**videos.ONEVISION))
    if kind == "Glm4v":
        p = vl_chat.processor(name, tokenizer)
        p.video_processor = videos.CLASSES[kind](**videos.GLM4V)
        return p
    tokenizer.image_token = "<|image_pad|>"
    tokenizer.video_token = "<|video_pad|>"
    own = {"Qwen2VL": transformers.Qwen2_5_VLProcessor,
           "Qwen3VL": transformers.Qwen3VLProcessor}[kind]
    settings = {"Qwen2VL": videos.QWEN2, "Qwen3VL": videos.QWEN3}[kind]
    return own(
        Qwen2VLImageProcessorPil(
            patch_size=settings["patch_size"],
            size=dict(shortest_edge=784, longest_edge=7840)),
        tokenizer, videos.CLASSES[kind](**settings),
        chat_template=vl_chat.QWEN)


def line(kind, name, sampling, place):
    tokenizer = vl_chat.write(name, place)
    p = processor(kind, name, tokenizer)
    text = p.apply_chat_template(MESSAGES, tokenize=False)
    read = [videos.decode(os.path.join(VIDEOS, file)) for file in FILES]
    picture = Image.open(os.path.join(vl_chat.PICTURES, "rgb.png"))
    found = p(text=[text], images=[[picture.convert("RGB")]],
              videos=[torch.from_numpy(frames.transpose(0, 3, 1, 2).copy())
                      for frames, _ in read],
              video_metadata=[metadata for _, metadata in read],
              do_sample_frames=True, return_tensors="pt", **sampling)
    ids = found["input_ids"][0].tolist()
    stand = {tokenizer.convert_tokens_to_ids(token)
             for token in ("<IMG_CONTEXT>", "<|image_pad|>", "<|video_pad|>",
                           "<image>", "<video>", "<|image|>",
                           "<|IMAGE_PLACEHOLDER|>", "<|VIDEO_PLACEHOLDER|>")}
    stand -= {None, tokenizer.unk_token_id}
    ids = [t for k, t in enumerate(ids)
           if not (t in stand and k > 0 and ids[k - 1] == t)]
    return f"{kind} " + " ".join(map(str, ids))


def main():
    kind = transformers.ProcessorMixin
    kind.check_argument_for_proper_class = lambda self, name, value: None
    with tempfile.TemporaryDirectory() as place:
        lines = [line(*kind, place) for kind in KINDS]
    path = os.path.join(vl_chat.FIXTURE, "video_ids.txt")
    if "--check" in sys.argv[1:]:
        assert open(path).read().split("\n")[:-1] == lines
        return
    with open(path, "w") as f:
        f.writelines(own + "\n" for own in lines)
    with open(os.path.join(vl_chat.FIXTURE, "videos.jsonl"), "w") as f:
        f.write(json.dumps(RECORD) + "\n")


if __name__ == "__main__":
    main()
