#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning with TRL, beside which loongrun's is held.

  sft_curve.py MODEL TRAIN.jsonl HELD_OUT.jsonl OUT.json [--method lora|full]
               [--steps N] [--batch B] [--lr LR] [--seed S] [--samples K]

Trains on the first K conversations of a user and an assistant in TRAIN, in
float32: SFTTrainer of trl, no packing, the answers alone are learned, linear
decay behind a warm-up of a tenth, AdamW (0.9, 0.999), no decay of weights,
clipped at 1. Writes the loss of each step, that of HELD_OUT before and after,
and what the model answers to the first questions there.
"""
import argparse
import json

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import (AutoModelForCausalLM, AutoTokenizer, TrainerCallback)
from trl import SFTConfig, SFTTrainer


def conversations(path, count=None):
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line)["messages"] for line in file]
    return rows[:count]


def halves(rows):
    return Dataset.from_list([{"prompt": m[:-1], "completion": m[-1:]}
                              for m in rows])


def held_out_loss(model, tokenizer, rows):
    """Mean over the answers' tokens, with the end of the turn."""
    total, count = 0.0, 0
    model.eval()
    for messages in rows:
        prompt = tokenizer.apply_chat_template(
            messages[:-1], add_generation_prompt=True, tokenize=False)
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False).input_ids
        begin = len(tokenizer(prompt, add_special_tokens=False).input_ids)
        ids = torch.tensor([ids])
        with torch.no_grad():
            logits = model(ids).logits[0, :-1].double()
        target = ids[0, 1:]
        loss = torch.nn.functional.cross_entropy(
            logits[begin - 1:], target[begin - 1:], reduction="sum")
        total += loss.item()
        count += len(target) - begin + 1
    return total / count, count


def answers(model, tokenizer, rows):
    found = []
    model.eval()
    for messages in rows:
        ids = tokenizer.apply_chat_template(
            messages[:-1], add_generation_prompt=True, return_tensors="pt",
            return_dict=True)
        out = model.generate(**ids, max_new_tokens=60, do_sample=False)
        found.append(tokenizer.decode(out[0, ids["input_ids"].shape[1]:]))
    return found


class Losses(TrainerCallback):
    def __init__(self):
        self.rows = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.rows.append({"step": state.global_step, **{
                k: logs[k] for k in ("loss", "grad_norm", "learning_rate")}})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("train")
    parser.add_argument("held_out")
    parser.add_argument("out")
    parser.add_argument("--method", default="lora")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=int, default=480)
    parser.add_argument("--held-out-count", type=int, default=100)
    o = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(o.model)
    model = AutoModelForCausalLM.from_pretrained(o.model,
                                                 dtype=torch.float32)
    rows = conversations(o.train, o.samples)
    held = conversations(o.held_out, o.held_out_count)
    result = {"held_out_before": held_out_loss(model, tokenizer, held),
              "answers_before": answers(model, tokenizer, held[:4])}
    losses = Losses()
    config = SFTConfig(
        output_dir=o.out + ".trl", max_steps=o.steps,
        per_device_train_batch_size=o.batch, learning_rate=o.lr,
        lr_scheduler_type="linear", warmup_steps=o.steps // 10,
        weight_decay=0.0, adam_beta2=0.999, max_grad_norm=1.0,
        logging_steps=1, save_strategy="no", seed=o.seed, use_cpu=True,
        bf16=False, report_to=[], max_length=None,
        gradient_checkpointing=False)
    peft = LoraConfig(r=16, lora_alpha=32, task_type="CAUSAL_LM",
                      target_modules="all-linear") \
        if o.method == "lora" else None
    trainer = SFTTrainer(model=model, args=config, train_dataset=halves(rows),
                         processing_class=tokenizer, peft_config=peft,
                         callbacks=[losses])
    trained = trainer.train()
    result["seconds"] = trained.metrics["train_runtime"]
    result["losses"] = losses.rows
    result["held_out_after"] = held_out_loss(trainer.model, tokenizer, held)
    result["answers_after"] = answers(trainer.model, tokenizer, held[:4])
    with open(o.out, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
