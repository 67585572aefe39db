# SPDX-License-Identifier: Apache-2.0
"""LLaVA-OneVision-1.5 (An et al. 2025), written from its published description:
RICE (Xie et al. 2025) sees each picture, or each frame, by itself behind a class
token whose rotary angles are learned; a merger makes rows of 2 x 2 patches for
a Qwen3. Modules have the publisher's names.
"""
import torch
import transformers
from torch import nn
from torch.nn import functional as F
from transformers.conversion_mapping import (
    WeightRenaming, register_checkpoint_conversion_mapping)

THETA = 1e4


class RiceConfig(transformers.PretrainedConfig):
    model_type = "rice_vit"
    base_config_key = "vision_config"

    def __init__(self, depth=24, embed_dim=1024, hidden_size=1024,
                 hidden_act="gelu", intermediate_size=4096, num_heads=16,
                 in_channels=3, patch_size=14, spatial_merge_size=2,
                 temporal_patch_size=1, initializer_range=0.02,
                 layer_norm_eps=1e-5, text_hidden_size=2560, **kwargs):
        for key, value in list(locals().items()):
            if key not in ("self", "kwargs", "__class__"):
                setattr(self, key, value)
        super().__init__(**kwargs)


class TextConfig(transformers.Qwen3Config):
    model_type = "LLaVAOneVision1_5_text"


class Config(transformers.PretrainedConfig):
    model_type = "llavaonevision1_5"
    sub_configs = {"vision_config": RiceConfig, "text_config": TextConfig}

    def __init__(self, text_config=None, vision_config=None,
                 image_token_id=151655, video_token_id=151656,
                 vocab_size=152064, **kwargs):
        def section(of, given):
            return given if isinstance(given, of) else of(**(given or {}))

        self.vision_config = section(RiceConfig, vision_config)
        self.text_config = section(TextConfig, text_config)
        self.image_token_id = image_token_id
        self.video_token_id = video_token_id
        self.vocab_size = vocab_size
        super().__init__(**kwargs)


class PatchEmbed(nn.Module):
    def __init__(self, c):
        super().__init__()
        side = c.patch_size
        self.shape = (c.in_channels, side, side)
        self.proj = nn.Conv2d(c.in_channels, c.hidden_size, side, side,
                              bias=False)

    def forward(self, pixels):
        return self.proj(pixels.reshape(-1, *self.shape)).flatten(1)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c.num_heads
        self.qkv = nn.Linear(c.hidden_size, 3 * c.hidden_size)
        self.proj = nn.Linear(c.hidden_size, c.hidden_size)

    def forward(self, x, angles):
        """x [n, hidden] of one picture, angles [n, half of a head]."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(0, 1)
                   for part in self.qkv(x).chunk(3, -1))
        turn = torch.polar(torch.ones_like(angles), angles)

        def turned(y):
            first, second = y.chunk(2, -1)
            z = torch.complex(first, second) * turn
            return torch.cat((z.real, z.imag), -1)

        score = turned(q) @ turned(k).transpose(1, 2)
        score = score / (x.shape[-1] // self.heads) ** 0.5
        return self.proj((score.softmax(-1) @ v).transpose(0, 1).flatten(1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc1 = nn.Linear(c.hidden_size, c.intermediate_size)
        self.fc2 = nn.Linear(c.intermediate_size, c.hidden_size)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1 = nn.LayerNorm(c.hidden_size, eps=1e-5)
        self.attn = Attention(c)
        self.norm2 = nn.LayerNorm(c.hidden_size, eps=1e-5)
        self.mlp = Mlp(c)

    def forward(self, x, angles):
        x = x + self.attn(self.norm1(x), angles)
        return x + self.mlp(self.norm2(x))


class Merger(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.width = c.hidden_size * c.spatial_merge_size ** 2
        self.ln_q = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        self.mlp = nn.Sequential(nn.Linear(self.width, self.width), nn.GELU(),
                                 nn.Linear(self.width, c.text_hidden_size))

    def forward(self, x):
        return self.mlp(self.ln_q(x).reshape(-1, self.width))


class Rice(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.patch_embed = PatchEmbed(c)
        self.class_embedding = nn.Parameter(torch.zeros(c.hidden_size))
        self.class_pos_emb = nn.Parameter(
            torch.zeros(1, c.hidden_size // c.num_heads // 2))
        self.pre_layernorm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.depth))
        self.merger = Merger(c)

    def angles(self, rows, columns):
        """Of a picture's patches, block by block; rows turn the first half of
        the pairs of channels, columns the others."""
        m, pairs = self.c.spatial_merge_size, self.class_pos_emb.shape[1]
        places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
        places = places.reshape(rows // m, m, columns // m, m, 2)
        places = places.transpose(1, 2).reshape(-1, 2, 1).to(
            self.class_pos_emb.dtype)
        each = torch.arange(pairs // 2, dtype=places.dtype)
        return (places * THETA ** (-2 * each / pairs)).flatten(1)

    def one(self, pixels, rows, columns):
        x = torch.cat((self.class_embedding[None], self.patch_embed(pixels)))
        angles = torch.cat((self.class_pos_emb, self.angles(rows, columns)))
        x = self.pre_layernorm(x)
        for block in self.blocks:
            x = block(x, angles)
        return x[1:]

    def forward(self, pixels, grids):
        seen, at = [], 0
        for moments, rows, columns in grids.tolist():
            for _ in range(moments):
                seen.append(self.one(pixels[at:at + rows * columns], rows,
                                     columns))
                at += rows * columns
        return self.merger(torch.cat(seen))


class Parts(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.visual = Rice(config.vision_config)
        self.language_model = transformers.AutoModel.from_config(
            transformers.Qwen3Config(**{
                key: value for key, value in
                config.text_config.to_dict().items() if key != "model_type"}),
            attn_implementation="eager")


class LLaVAOneVision1_5_ForConditionalGeneration(transformers.PreTrainedModel):
    config_class = Config

    def __init__(self, config):
        super().__init__(config)
        text = config.text_config
        self.model = Parts(config)
        self.lm_head = nn.Linear(text.hidden_size, text.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids, pixel_values=None, image_grid_thw=None,
                **others):
        x = self.model.language_model.embed_tokens(input_ids)
        if pixel_values is not None:
            seen = self.model.visual(pixel_values, image_grid_thw)
            here = (input_ids == self.config.image_token_id)[..., None]
            x = x.masked_scatter(here.expand_as(x), seen)
        hidden = self.model.language_model(inputs_embeds=x).last_hidden_state
        return transformers.modeling_outputs.CausalLMOutputWithPast(
            logits=self.lm_head(hidden))


# The publisher's files have the first names.
register_checkpoint_conversion_mapping(Config.model_type, [
    WeightRenaming(r"^visual\.", "model.visual."),
    WeightRenaming(r"^model\.(?!language_model\.|visual\.)",
                   "model.language_model.")])
transformers.AutoConfig.register(Config.model_type, Config)
transformers.AutoModelForImageTextToText.register(
    Config, LLaVAOneVision1_5_ForConditionalGeneration)
