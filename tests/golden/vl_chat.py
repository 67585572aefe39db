#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Conversations with pictures against transformers' processors.

  vl_chat.py BUILD           writes vl_chat/: tokenizers with the templates that
                             LLaVA-1.5, LLaVA-OneVision, Qwen2-VL, InternVL3 and
                             GLM-4.1V are published with, MiniCPM-V 4.6's with a
                             picture as its one token and slices (PaliGemma without one: ours is proved to be
                             what its processor does; ERNIE 4.5 VL's asks for an answer otherwise than it
                             writes one, ours has the same text), conversations, and ids and masks as
                             transformers has them, a picture as its one token
  vl_chat.py BUILD --check   writes them elsewhere, and compares with the ids
                             and masks of loong-data chat inspect, each picture
                             by as many tokens as the processor says
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types

import tokenizers
import transformers
from PIL import Image
from transformers.models.ernie4_5_vl_moe.image_processing_pil_ernie4_5_vl_moe \
    import Ernie4_5_VLMoeImageProcessorPil
from transformers.models.glm4v.image_processing_pil_glm4v import \
    Glm4vImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import \
    GotOcr2ImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision \
    import LlavaOnevisionImageProcessorPil
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import \
    MiniCPMV4_6ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import \
    Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import \
    SiglipImageProcessorPil

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
FIXTURE = os.path.join(HERE, "vl_chat")
PICTURES = os.path.join(SOURCE, "tests/fixtures/images")

LLAVA = (
    "{% for message in messages %}{% if message['role'] != 'system' %}"
    "{{ message['role'].upper() + ': '}}{% endif %}"
    "{# Render all images first #}"
    "{% for content in message['content'] | selectattr('type', 'equalto', "
    "'image') %}{{ '<image>\n' }}{% endfor %}{# Render all text next #}"
    "{% if message['role'] != 'assistant' %}{% for content in "
    "message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] + ' '}}{% endfor %}{% else %}{% for content in "
    "message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{% generation %}{{ content['text'] + ' '}}{% endgeneration %}{% endfor %}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}"
    "{{ 'ASSISTANT:' }}{% endif %}")
ONEVISION = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}"
    "{# Render all images first #}{% for content in message['content'] | "
    "selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}"
    "{# Render all video then #}{% for content in message['content'] | "
    "selectattr('type', 'equalto', 'video') %}{{ '<video>\n' }}{% endfor %}"
    "{# Render all text next #}{% if message['role'] != 'assistant' %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', "
    "'text') %}{{ content['text'] }}{% endfor %}{% else %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', "
    "'text') %}{% generation %}{{ content['text'] }}{% endgeneration %}"
    "{% endfor %}{% endif %}{{'<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
QWEN = (
    "{% set image_count = namespace(value=0) %}"
    "{% set video_count = namespace(value=0) %}"
    "{% for message in messages %}{% if loop.first and message['role'] != "
    "'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in "
    "content %}{% set image_count.value = image_count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}"
    "{% set video_count.value = video_count.value + 1 %}"
    "{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}"
    "<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}"
    "<|im_start|>assistant\n{% endif %}")
INTERNVL = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' "
    "%}{{ '<IMG_CONTEXT>\n' }}{% elif content['type'] == 'video' %}"
    "{{ '<video>\n' }}{% elif content['type'] == 'text' %}"
    "{{ content['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{{'<|im_end|>\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{'<|im_start|>assistant\n' }}{% endif %}")
GLM4V = (
    "[gMASK]<sop>{% for m in messages %}{% if m.role == 'system' %}"
    "<|system|>\n{{ m.content if m.content is string else "
    "m.content[0].text }}{% elif m.role == 'user' %}<|user|>\n"
    "{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for item in m.content %}{% if item.type == 'video' or 'video' in item "
    "%}<|begin_of_video|><|video|><|end_of_video|>{% elif item.type == "
    "'image' or 'image' in item %}<|begin_of_image|><|image|><|end_of_image|>"
    "{% elif item.type == 'text' %}{{ item.text }}{% endif %}{% endfor %}"
    "{% endif %}{% elif m.role == 'assistant' %}<|assistant|>\n"
    "{{ m.content if m.content is string else m.content[0].text }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n"
    "{% endif %}")
MINICPM = QWEN.replace("<|vision_start|>", "").replace(
    "<|vision_end|>", "\n")
SLICES = dict(image_start="<image>", image_end="</image>",
              slice_start="<slice>", slice_end="</slice>",
              image_id_start="<image_id>", image_id_end="</image_id>")
NAMED = dict(context_image_token="<IMG_CONTEXT>", start_image_token="<img>",
             end_image_token="</img>", video_token="<video>")


def ours_named(name):
    with open(os.path.join(SOURCE, "src/jinja/named", name + ".jinja")) as f:
        return f.read()


PALIGEMMA, ERNIE = ours_named("paligemma"), ours_named("ernie4.5-vl")
MEDIA = {f"{of}{part}_token": f"<|{of.upper()}_{word}|>"
         for of in ("image", "video")
         for part, word in (("", "PLACEHOLDER"), ("_start", "START"),
                            ("_end", "END"))}
FAMILIES = {
    "ernie4_5_vl": ("<|IMAGE_PLACEHOLDER|>", ERNIE,
                    ["<unk>", "</s>", "<|begin_of_sentence|>",
                     "<|end_of_sentence|>", *MEDIA.values()]),
    "paligemma": ("<image>", PALIGEMMA, ["<pad>", "<s>", "</s>", "<image>"]),
    "internvl": ("<IMG_CONTEXT>", INTERNVL,
                 ["<|endoftext|>", "<|im_start|>", "<|im_end|>",
                  *NAMED.values()]),
    "glm4v": ("<|image|>", GLM4V,
              ["<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>",
               "<|assistant|>", "<|image|>", "<|video|>",
               "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>",
               "<|end_of_video|>"]),
    "minicpmv4_6": ("<|image_pad|>", MINICPM,
                    ["<|endoftext|>", "<|im_start|>", "<|im_end|>",
                     "<|image_pad|>", "<|video_pad|>", *SLICES.values()]),
    "llava": ("<image>", LLAVA, ["<s>", "</s>", "<image>"]),
    "llava_onevision": ("<image>", ONEVISION,
                        ["<|endoftext|>", "<|im_start|>", "<|im_end|>",
                         "<image>", "<video>"]),
    "qwen2_vl": ("<|image_pad|>", QWEN,
                 ["<|endoftext|>", "<|im_start|>", "<|im_end|>",
                  "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
                  "<|video_pad|>"])}

# A record, and the messages that it means.
TEXT = lambda text: dict(type="text", text=text)
IMAGE = lambda path: dict(type="image", path=path)
SAY = lambda role, *parts: dict(role=role, content=list(parts))
RECORDS = [
    (dict(messages=[
        dict(role="user", content=[dict(type="image", image="rgb.png"),
                                   TEXT("What is it?")]),
        dict(role="assistant", content="A picture.")]),
     [SAY("user", IMAGE("rgb.png"), TEXT("What is it?")),
      SAY("assistant", TEXT("A picture."))]),
    (dict(messages=[
        dict(role="system", content="Be short."),
        dict(role="user", content=[
            dict(type="image_url", image_url=dict(url="file://j420.jpg")),
            TEXT("And "), dict(type="image"), TEXT("?")]),
        dict(role="assistant", content=[TEXT("Both are.")]),
        dict(role="user", content="Why?"),
        dict(role="assistant", content="So.")], images=["tall.jpg"]),
     [SAY("system", TEXT("Be short.")),
      SAY("user", IMAGE("j420.jpg"), TEXT("And "), IMAGE("tall.jpg"),
          TEXT("?")),
      SAY("assistant", TEXT("Both are.")), SAY("user", TEXT("Why?")),
      SAY("assistant", TEXT("So."))]),
    (dict(messages=[dict(role="user", content="No picture?"),
                    dict(role="assistant", content="None.")]),
     [SAY("user", TEXT("No picture?")), SAY("assistant", TEXT("None."))]),
    (dict(messages=[dict(role="user", content="<image>\nIs <image> it?"),
                    dict(role="assistant", content="Yes.")],
          images=["rgb.png", dict(path="tall.jpg")]),
     [SAY("user", IMAGE("rgb.png"), TEXT("\nIs "), IMAGE("tall.jpg"),
          TEXT(" it?")), SAY("assistant", TEXT("Yes."))]),
]
LLAVA_RECORDS = [  # as LLaVA's own files, of format sharegpt
    (dict(id="1", image="tall.jpg", conversations=[
        {"from": "human", "value": "<image>\nDescribe."},
        {"from": "gpt", "value": "A tall one."},
        {"from": "human", "value": "More."},
        {"from": "gpt", "value": "No."}]),
     [SAY("user", IMAGE("tall.jpg"), TEXT("\nDescribe.")),
      SAY("assistant", TEXT("A tall one.")), SAY("user", TEXT("More.")),
      SAY("assistant", TEXT("No."))]),
]


# One question and its answer, with pictures.
SINGLE = [RECORDS[0], RECORDS[3]]
FILES = dict(openai=RECORDS, sharegpt=LLAVA_RECORDS, single=SINGLE)
READS = dict(paligemma=["single"])  # others: the first two


def write(name, place):
    """The directory of a model's tokenizer, and conversations beside."""
    token, template, special = FAMILIES[name]
    own = tokenizers.Tokenizer(tokenizers.models.BPE(
        vocab={c: i for i, c in enumerate(
            sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))},
        merges=[]))
    own.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False)
    own.decoder = tokenizers.decoders.ByteLevel()
    own.add_special_tokens(special)
    ends = dict(bos_token="<s>", eos_token="</s>") if name in (
        "llava", "paligemma") else dict(
        eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    ) if name == "glm4v" else dict(
        eos_token="</s>", pad_token="<unk>") if name == "ernie4_5_vl" else dict(
        eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, chat_template=template, **ends,
        extra_special_tokens=NAMED if name == "internvl" else {})
    to = os.path.join(place, name)
    os.makedirs(to, exist_ok=True)
    own.save(os.path.join(to, "tokenizer.json"))
    if name == "minicpmv4_6":
        with open(os.path.join(to, "preprocessor_config.json"), "w") as f:
            json.dump(slicing().to_dict(), f, indent=1)
    with open(os.path.join(to, "tokenizer_config.json"), "w") as f:
        more = dict(extra_special_tokens=NAMED) if name == "internvl" else {}
        json.dump(dict(chat_template=template, **ends, **more), f, indent=1)
    for file, records in FILES.items():
        with open(os.path.join(place, file + ".jsonl"), "w") as f:
            f.writelines(json.dumps(r) + "\n" for r, _ in records)
    return tokenizer


def slicing():
    return MiniCPMV4_6ImageProcessorPil(patch_size=2, scale_resolution=16)


def minicpm(tokenizer, videos):
    tokenizer.image_token, tokenizer.video_token = (
        "<|image_pad|>", "<|video_pad|>")
    for key, token in SLICES.items():
        setattr(tokenizer, key + "_token", token)
    for key in ("image", "video"):
        setattr(tokenizer, key + "_token_id", tokenizer.convert_tokens_to_ids(
            getattr(tokenizer, key + "_token")))
    own = slicing()
    return transformers.MiniCPMV4_6Processor(
        own, videos or types.SimpleNamespace(
            slice_mode=True, downsample_mode=own.downsample_mode),
        tokenizer, chat_template=MINICPM)


def ernie(tokenizer, videos):
    for key, token in MEDIA.items():
        setattr(tokenizer, key, token)
        setattr(tokenizer, key + "_id", tokenizer.convert_tokens_to_ids(token))
    return transformers.Ernie4_5_VLMoeProcessor(
        Ernie4_5_VLMoeImageProcessorPil(
            size=dict(shortest_edge=784, longest_edge=7840)),
        tokenizer, videos, chat_template=ERNIE)


def onevision(tokenizer, videos):
    transformers.ProcessorMixin.check_argument_for_proper_class = (
        lambda self, name, value: None)
    return transformers.LlavaOnevisionProcessor(
        LlavaOnevisionImageProcessorPil(
            size=dict(height=56, width=56),
            image_grid_pinpoints=[[56, 56], [112, 112], [168, 112]]),
        tokenizer, videos, num_image_tokens=16,
        vision_feature_select_strategy="full", chat_template=ONEVISION)


def processor(name, tokenizer):
    token = FAMILIES[name][0]
    if name == "llava":
        return transformers.LlavaProcessor(
            transformers.CLIPImageProcessor(
                size=dict(shortest_edge=28), crop_size=dict(height=28,
                                                            width=28)),
            tokenizer, patch_size=14, vision_feature_select_strategy="default",
            image_token=token, num_additional_image_tokens=1,
            chat_template=FAMILIES[name][1])
    if name == "llava_onevision":
        return onevision(tokenizer, None)
    if name == "paligemma":
        pixels = SiglipImageProcessorPil(size=dict(height=28, width=28))
        pixels.image_seq_length = 4
        return transformers.PaliGemmaProcessor(pixels, tokenizer)
    kind = transformers.ProcessorMixin  # video processors want torchvision
    kind.check_argument_for_proper_class = lambda self, name, value: None
    if name == "internvl":
        return transformers.InternVLProcessor(
            GotOcr2ImageProcessorPil(size=dict(height=28, width=28),
                                     max_patches=6),
            tokenizer, None, image_seq_length=4, chat_template=INTERNVL)
    if name == "minicpmv4_6":
        return minicpm(tokenizer, None)
    if name == "ernie4_5_vl":
        return ernie(tokenizer, None)
    if name == "glm4v":
        tokenizer.image_token, tokenizer.video_token = token, "<|video|>"
        return transformers.Glm4vProcessor(
            Glm4vImageProcessorPil(size=dict(shortest_edge=1568,
                                             longest_edge=15680)),
            tokenizer, None, chat_template=GLM4V)
    tokenizer.image_token, tokenizer.video_token = token, "<|video_pad|>"
    return transformers.Qwen2VLProcessor(
        Qwen2VLImageProcessorPil(size=dict(shortest_edge=784,
                                           longest_edge=7840)),
        tokenizer, None, chat_template=FAMILIES[name][1])


def answered(p, messages):
    """A question and its answer, which PaliGemma's processor calls suffix."""
    texts = ["".join("<image>" if part["type"] == "image" else part["text"]
                     for part in m["content"]) for m in messages]
    images = [Image.open(os.path.join(PICTURES, part["path"])).convert("RGB")
              for part in messages[0]["content"] if part["type"] == "image"]
    found = p(images=[images], text=[texts[0]], suffix=[texts[1]])
    return list(found["input_ids"][0]), list(found["token_type_ids"][0])


def expected(p, messages, rows):
    """Ids of transformers, which of them are learned; counts of pictures are
    added to rows."""
    def ids_of(messages, prompt):
        paths = [part["path"] for m in messages for part in m["content"]
                 if part["type"] == "image"]
        images = [Image.open(os.path.join(PICTURES, path)).convert("RGB")
                  for path in paths]
        text = p.apply_chat_template(messages, tokenize=False,
                                     add_generation_prompt=prompt)
        return p(text=[text], images=[images] if images else None,
                 add_special_tokens=False)["input_ids"][0]
    suffix = isinstance(p, transformers.PaliGemmaProcessor)
    ids, learned = answered(p, messages) if suffix else (
        ids_of(messages, False), [])
    learned = learned or [0] * len(ids)
    for k, message in enumerate([] if suffix else messages):
        if message["role"] == "assistant":
            begin = len(ids_of(messages[:k], True))
            end = len(ids_of(messages[:k + 1], False))
            if p.chat_template == ERNIE:  # asked for with an empty thought
                begin -= len("<think>\n\n</think>\n\n")
            if p.chat_template == LLAVA:
                begin += 1  # the blank behind ASSISTANT:
            elif p.chat_template == ONEVISION:
                end -= 2  # <|im_end|> and a line's end
            learned[begin:end] = [1] * (end - begin)
    image = p.tokenizer.convert_tokens_to_ids(p.image_token)
    run = 0
    for token in list(ids) + [None]:
        if token == image:
            run += 1
        elif run:
            rows.append(run)
            run = 0
    return list(ids), learned, image


def ours(build, name, place, file):
    text = subprocess.run(
        [os.path.join(build, "loong-data"), "chat", "inspect", "--tokenizer",
         os.path.join(place, name), "--ids", "--count", "99", "--image-token",
         FAMILIES[name][0], "--cache", os.path.join(place, "cache"),
         "--image-root", PICTURES,
         *(["--image-processor",
            os.path.join(place, name, "preprocessor_config.json")]
           if name == "minicpmv4_6" else []),
         os.path.join(place, file + ".jsonl")],
        check=True, capture_output=True).stdout.decode("utf-8", "replace")
    for sample in text.split("\n\n")[1:]:
        lines = [line for line in sample.split("\n")[1:]
                 if line and "picture at" not in line]
        yield ([int(line[2:10]) for line in lines],
               [int(line[0] == "+") for line in lines])


def main():
    checks = "--check" in sys.argv[2:]
    with tempfile.TemporaryDirectory() as other:
        place = other if checks else FIXTURE
        golden = {}
        for name in FAMILIES:
            p = processor(name, write(name, place))
            for file in READS.get(name, ["openai", "sharegpt"]):
                records = FILES[file]
                found = list(ours(sys.argv[1], name, place, file))
                assert len(found) == len(records), (name, file, len(found))
                for (_, messages), (ids, mask) in zip(records, found):
                    rows = []
                    want, learned, image = expected(p, messages, rows)
                    golden.setdefault(f"{name} {file}", []).append(
                        [ids, mask])
                    counts = iter(rows)
                    long, wide = [], []
                    for token, learns in zip(ids, mask):
                        times = next(counts) if token == image else 1
                        long += [token] * times
                        wide += [learns] * times
                    assert long == want, (name, file, messages)
                    assert wide == learned, (name, file, messages, wide,
                                             learned)
                print(f"{name}, {file}: {len(records)} conversations are as "
                      "transformers has them")
        if not checks:
            shutil.rmtree(os.path.join(FIXTURE, "cache"))
            with open(os.path.join(FIXTURE, "ids.txt"), "w") as f:
                for key, samples in golden.items():
                    for ids, mask in samples:
                        f.write(key + " " + " ".join(
                            f"{'+' if m else ''}{t}"
                            for t, m in zip(ids, mask)) + "\n")


if __name__ == "__main__":
    main()
