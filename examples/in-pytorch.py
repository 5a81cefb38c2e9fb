# The example jobs as PyTorch trains them: python3 examples/in-pytorch.py example-data [part of a name]
# The same rows, models, optimizers, schedules, batches and epochs as in the job files; splits, first values and the
# order of rows are PyTorch's own, of ten seeds. Prints what examples/README.md states. Needs torch, numpy and Pillow.
import json
import math
import os
import re
import sys

import numpy
import torch
from PIL import Image

FOLDER = sys.argv[1] if len(sys.argv) > 1 else "example-data"
# What of their names is in this text.
ONLY = sys.argv[2] if len(sys.argv) > 2 else ""
SEEDS = range(1, 11)
# Of all examples, as `starling dataset import` splits them.
VALIDATION = 0.1


def split(x, y, share=VALIDATION):
    order = torch.randperm(len(x))
    held = round(share * len(x))
    return x[order[held:]], y[order[held:]], x[order[:held]], y[order[:held]]


def normalised(train, held):
    mean, deviation = train.mean(0), train.std(0, unbiased=False)
    return (train - mean) / deviation, (held - mean) / deviation


def train(model, x, y, loss, optimizer, factor, batch, epochs, varied=lambda images: images):
    steps = epochs * math.ceil(len(x) / batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factor(min(1, step / steps)))
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            loss(model(varied(x[rows])), y[rows]).backward()
            optimizer.step()
            schedule.step()


def linear(to):
    return lambda part: 1 + (to - 1) * part


def cosine(to):
    return lambda part: to + (1 - to) * (1 + math.cos(math.pi * part)) / 2


def regression():
    rows = numpy.loadtxt(os.path.join(FOLDER, "homes.csv"), delimiter=",", skiprows=1)
    table = torch.tensor(rows, dtype=torch.float32)
    x, y, held, wanted = split(table[:, :6], table[:, 6:])
    x, held = normalised(x, held)
    model = torch.nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, x, y, torch.nn.functional.mse_loss, optimizer, linear(0.01), 64, 12)
    ones = lambda rows: torch.cat([rows, torch.ones(len(rows), 1)], 1)
    best = torch.linalg.lstsq(ones(x), y).solution
    error = torch.nn.functional.mse_loss
    return (error(model(held), wanted) / error(ones(held) @ best, wanted)).item()


def multi_label():
    with open(os.path.join(FOLDER, "songs.jsonl")) as lines:
        songs = [json.loads(line) for line in lines]
    x = torch.tensor([song["measures"] for song in songs])
    y = torch.tensor([[float(song[mood]) for mood in ("calm", "loud", "old")] for song in songs])
    x, y, held, wanted = split(x, y)
    x, held = normalised(x, held)
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    model = torch.nn.Linear(8, 3)
    train(model, x, y, loss, torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0), cosine(0.02), 64, 12)
    best = torch.nn.Linear(8, 3)
    newton = torch.optim.LBFGS(best.parameters(), max_iter=500, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def closure():
        newton.zero_grad()
        value = loss(best(x), y)
        value.backward()
        return value

    newton.step(closure)
    return (loss(model(held), wanted) / loss(best(held), wanted)).item()


def images_of(folder):
    kinds = sorted(os.listdir(os.path.join(FOLDER, folder)))
    read = lambda path: torch.tensor(numpy.asarray(Image.open(path).convert("RGB"))).permute(2, 0, 1) / 255
    files = [(os.path.join(FOLDER, folder, kind, file), i) for i, kind in enumerate(kinds)
             for file in sorted(os.listdir(os.path.join(FOLDER, folder, kind)))]
    return torch.stack([read(path) for path, _ in files]), torch.tensor([kind for _, kind in files])


def varied(images):
    """Each mirrored either way by chance, and moved by up to two pixels."""
    return torch.stack([one_varied(image) for image in images])


def one_varied(image):
    turned = [axis for axis in (1, 2) if torch.rand(()) < 0.5]
    padded = torch.nn.functional.pad(torch.flip(image, turned), (2, 2, 2, 2))
    row, column = torch.randint(0, 5, (2,)).tolist()
    return padded[:, row:row + 16, column:column + 16]


def trained_on_images(make, folder, held_share, lr, batch, epochs):
    """The model, and the part of the validation images that it tells right."""
    x, y, held, wanted = split(*images_of(folder), held_share)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0)
    train(model, x, y, torch.nn.functional.cross_entropy, optimizer, cosine(0.1), batch, epochs, varied)
    return model, (model(held).argmax(1) == wanted).float().mean().item()


def convnet(classes):
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(256, classes))


def colour_images():
    return trained_on_images(lambda: convnet(3), "fruits", VALIDATION, 0.005, 27, 10)[1]


def tuned(make, head, before, after, seed_only):
    """A model of four kinds of which there are few images: from one that knows three others, or from its seed."""
    kept = {}
    if not seed_only:
        known, _ = trained_on_images(lambda: make(3), "fruits", VALIDATION, *before)
        kept = {name: value for name, value in known.state_dict().items() if not name.startswith(head)}

    def begun():
        model = make(4)
        model.load_state_dict(kept, strict=False)
        return model

    return trained_on_images(begun, "few", 0.5, *after)[1]


def fine_tuning(seed_only=False):
    return tuned(convnet, "7.", (0.005, 27, 10), (0.005, 12, 30), seed_only)


class Block(torch.nn.Module):
    def __init__(self, channels, heads, causal, activation):
        super().__init__()
        self.heads, self.causal, self.activation = heads, causal, activation
        self.norm1, self.norm2 = torch.nn.LayerNorm(channels), torch.nn.LayerNorm(channels)
        self.qkv, self.proj = torch.nn.Linear(channels, 3 * channels), torch.nn.Linear(channels, channels)
        self.fc1, self.fc2 = torch.nn.Linear(channels, 4 * channels), torch.nn.Linear(4 * channels, channels)

    def forward(self, x):
        samples, tokens, channels = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(samples, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(2, 3) / math.sqrt(channels / self.heads)
        if self.causal:
            scores = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -math.inf)
        x = x + self.proj((scores.softmax(3) @ v).transpose(1, 2).reshape(samples, tokens, channels))
        return x + self.fc2(self.activation(self.fc1(self.norm2(x))))


def begin_as_gpt(model, blocks, ends_of_branches):
    """GPT-2's first values."""
    for name, value in model.named_parameters():
        if value.dim() == 1:
            (torch.nn.init.ones_ if "norm" in name and name.endswith("weight") else torch.nn.init.zeros_)(value)
        else:
            ends = name.endswith(ends_of_branches)
            torch.nn.init.normal_(value, std=0.02 / math.sqrt(2 * blocks) if ends else 0.02)


class Vit(torch.nn.Module):
    def __init__(self, classes, channels=24, blocks=2, heads=3):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(channels, heads, False, torch.nn.GELU()) for _ in range(blocks))
        self.norm, self.head = torch.nn.LayerNorm(channels), torch.nn.Linear(channels, classes)
        self.positions, self.first = (torch.nn.Parameter(torch.zeros(1, n, channels)) for n in (17, 1))
        begin_as_gpt(self, blocks, ())
        self.patches = torch.nn.Conv2d(3, channels, 4, stride=4)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), 1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def vision_transformer(seed_only=False):
    return tuned(Vit, "head.", (0.002, 27, 20), (0.002, 12, 30), seed_only)


class Gpt(torch.nn.Module):
    def __init__(self, vocab, context, channels=32, heads=2):
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(vocab, channels), torch.nn.Embedding(context, channels)
        self.block = Block(channels, heads, True, torch.nn.GELU())
        self.norm, self.head = torch.nn.LayerNorm(channels), torch.nn.Linear(channels, vocab, bias=False)
        self.head.weight = self.tokens.weight
        begin_as_gpt(self, 1, ("proj.weight", "fc2.weight"))

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.block(x))).transpose(1, 2)


def pieces_of(text, tokenizer):
    vocab = tokenizer["model"]["vocab"]
    merges = [tuple(merge.split(" ")) for merge in tokenizer["model"]["merges"]]
    known = {}

    def pieces(word):
        parts = [{" ": "\u0120", "\n": "\u010a"}.get(letter, letter) for letter in word]
        for merge in merges:
            i = 0
            while i + 1 < len(parts):
                if (parts[i], parts[i + 1]) == merge:
                    parts[i:i + 2] = ["".join(merge)]
                i += 1
        return [vocab[part] for part in parts]

    ids = []
    for word in re.findall(r" ?[a-z]+|[^a-z]", text):
        if word not in known:
            known[word] = pieces(word)
        ids += known[word]
    return torch.tensor(ids)


def text_bpe(context=32, batch=12, epochs=4):
    with open(os.path.join(FOLDER, "sentences.txt")) as text, open(os.path.join(FOLDER, "tokenizer.json")) as file:
        tokenizer = json.load(file)
        ids = pieces_of(text.read(), tokenizer)
    border = int((1 - VALIDATION) * len(ids))
    learned, held = ids[:border], ids[border:]
    model = Gpt(len(tokenizer["model"]["vocab"]), context)
    decayed = [value for value in model.parameters() if value.dim() > 1]
    others = [value for value in model.parameters() if value.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0}], lr=0.01,
                                  betas=(0.9, 0.99), weight_decay=0.1)
    windows = (len(learned) - context) // context
    steps = epochs * math.ceil(windows / batch)
    factor = cosine(0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 10) * factor(max(0, min(1, (step - 10) / (steps - 10)))))
    loss = torch.nn.functional.cross_entropy
    for _ in range(epochs):
        for places in torch.randint(0, len(learned) - context, (windows,)).split(batch):
            rows = torch.stack([learned[place:place + context + 1] for place in places])
            optimizer.zero_grad()
            loss(model(rows[:, :-1]), rows[:, 1:]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
            optimizer.step()
            schedule.step()
    rows = torch.stack([held[place:place + context + 1] for place in range(0, len(held) - context - 1, context)])
    with torch.no_grad():
        return loss(model(rows[:, :-1]), rows[:, 1:]).item() / (5 * math.log(8) / 9)


EXAMPLES = {
    "regression": regression,
    "multi-label": multi_label,
    "colour-images": colour_images,
    "text-bpe": text_bpe,
    "fine-tuning": fine_tuning,
    "fine-tuning, from the seed": lambda: fine_tuning(True),
    "vision-transformer": vision_transformer,
    "vision-transformer, from the seed": lambda: vision_transformer(True),
}
for name, example in EXAMPLES.items():
    if ONLY not in name:
        continue
    found = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        found.append(example())
    mean = sum(found) / len(found)
    spread = f"lowest {min(found):.4f}, highest {max(found):.4f}"
    print(f"{name:33} mean {mean:.4f}, {spread} of {len(found)} seeds, torch {torch.__version__}")
