# The example jobs as PyTorch trains them: python3 examples/in-pytorch.py example-data
# The same rows, models, optimizers, schedules, batches and epochs as in the job files; splits, first values and the order of
# rows are PyTorch's own, of ten seeds. Prints what examples/README.md states. Needs torch, numpy and Pillow.
import json
import math
import os
import sys

import numpy
import torch
from PIL import Image

FOLDER = sys.argv[1] if len(sys.argv) > 1 else "example-data"
SEEDS = range(1, 11)
# Of all examples, as `starling dataset import` splits them.
VALIDATION = 0.1


def split(x, y):
    order = torch.randperm(len(x))
    held = round(VALIDATION * len(x))
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
    table = torch.tensor(numpy.loadtxt(os.path.join(FOLDER, "homes.csv"), delimiter=",", skiprows=1), dtype=torch.float32)
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


def colour_images():
    kinds = sorted(os.listdir(os.path.join(FOLDER, "fruits")))
    read = lambda path: torch.tensor(numpy.asarray(Image.open(path).convert("RGB"))).permute(2, 0, 1) / 255
    files = [(os.path.join(FOLDER, "fruits", kind, file), i) for i, kind in enumerate(kinds)
             for file in sorted(os.listdir(os.path.join(FOLDER, "fruits", kind)))]
    x, y, held, wanted = split(torch.stack([read(path) for path, _ in files]), torch.tensor([kind for _, kind in files]))
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(256, 3))

    def varied(images):
        """Mirrored either way by chance, and moved by up to two pixels."""
        return torch.stack([one_of(image) for image in images])

    def one_of(image):
        turned = [axis for axis in (1, 2) if torch.rand(()) < 0.5]
        padded = torch.nn.functional.pad(torch.flip(image, turned), (2, 2, 2, 2))
        row, column = torch.randint(0, 5, (2,)).tolist()
        return padded[:, row:row + 16, column:column + 16]

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005, weight_decay=0)
    train(model, x, y, torch.nn.functional.cross_entropy, optimizer, cosine(0.1), 27, 10, varied)
    return (model(held).argmax(1) == wanted).float().mean().item()


for name, example in (("regression", regression), ("multi-label", multi_label), ("colour-images", colour_images)):
    found = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        found.append(example())
    mean = sum(found) / len(found)
    print(f"{name:14} mean {mean:.4f}, lowest {min(found):.4f}, highest {max(found):.4f} of {len(found)} seeds, torch {torch.__version__}")
