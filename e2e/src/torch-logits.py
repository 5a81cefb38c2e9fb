"""Logits of a published llama-form model with PEFT adapters, in plain PyTorch: FOLDER ADAPTERS [IDS] -> JSON.

It reads config.json, the safetensors files and adapter_config.json itself, so that neither transformers nor peft has
to be installed.
"""
import glob
import json
import struct
import sys

import torch
import torch.nn.functional as F


def tensors(path):
    with open(path, "rb") as file:
        raw = file.read()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    data = memoryview(bytearray(raw[8 + length :]))
    return {
        name: torch.frombuffer(data[slice(*entry["data_offsets"])], dtype=torch.float32)
        .reshape(entry["shape"])
        .double()
        for name, entry in header.items()
    }


folder, adapters, ids = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
config = json.load(open(folder + "/config.json"))
lora = json.load(open(adapters + "/adapter_config.json"))
weights = {}
for file in glob.glob(folder + "/model*.safetensors"):
    weights.update(tensors(file))
adapter = tensors(adapters + "/adapter_model.safetensors")
scale = lora["lora_alpha"] / lora["r"]


def linear(name, x):
    y = F.linear(x, weights[name + ".weight"], weights.get(name + ".bias"))
    a = adapter.get("base_model.model." + name + ".lora_A.weight")
    b = adapter.get("base_model.model." + name + ".lora_B.weight")
    return y if a is None else y + scale * F.linear(F.linear(x, a), b)


def norm(name, x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]) * weights[name + ".weight"]


def rotated(x):
    half = x.shape[-1] // 2
    frequencies = config["rope_theta"] ** (-torch.arange(half).double() / half)
    angles = torch.arange(x.shape[1]).double()[:, None] * frequencies
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


def heads(name, x, count):
    return linear(name, x).view(len(ids), count, config["head_dim"]).transpose(0, 1)


x = weights["model.embed_tokens.weight"][torch.tensor(ids)]
q_heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
for i in range(config["num_hidden_layers"]):
    block = f"model.layers.{i}"
    h = norm(block + ".input_layernorm", x)
    q = rotated(heads(block + ".self_attn.q_proj", h, q_heads))
    k = rotated(heads(block + ".self_attn.k_proj", h, kv_heads)).repeat_interleave(q_heads // kv_heads, 0)
    v = heads(block + ".self_attn.v_proj", h, kv_heads).repeat_interleave(q_heads // kv_heads, 0)
    scores = q @ k.transpose(-2, -1) / config["head_dim"] ** 0.5
    scores = scores.masked_fill(torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1), float("-inf"))
    mixed = (F.softmax(scores, -1) @ v).transpose(0, 1).reshape(len(ids), -1)
    x = x + linear(block + ".self_attn.o_proj", mixed)
    h = norm(block + ".post_attention_layernorm", x)
    gate = F.silu(linear(block + ".mlp.gate_proj", h))
    x = x + linear(block + ".mlp.down_proj", gate * linear(block + ".mlp.up_proj", h))
head = "model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"
print(json.dumps(F.linear(norm("model.norm", x), weights[head]).flatten().tolist()))
