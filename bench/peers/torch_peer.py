"""PyTorch as a library under measurement: answers what src/libraries/torch.ts asks, one JSON line each."""
import base64
import json
import sys
import time

import numpy
import torch
import torch.nn.functional as F

torch.set_num_threads(int(sys.argv[1]))
device = torch.device(sys.argv[2])
torch.backends.cudnn.allow_tf32 = False  # all others compute in f32
if device.type == "cuda":
    torch.zeros(1, device=device)  # says why it cannot, before anything is measured


def finish():
    if device.type == "cuda":
        torch.cuda.synchronize()


def tensor(sent):
    if "ids" in sent:
        return torch.tensor(sent["ids"], device=device).reshape(sent["shape"])
    if "file" in sent:
        values = numpy.fromfile(sent["file"], dtype=numpy.float32, count=sent["length"], offset=sent["offset"])
    else:
        values = numpy.frombuffer(base64.b64decode(sent["base64"]), dtype=numpy.float32).copy()
    return torch.from_numpy(values).to(device).reshape(sent["shape"])


class Matmul:
    def __init__(self, task, tensors):
        self.a, self.b = tensor(tensors["a"]), tensor(tensors["b"])

    def run(self):
        return [self.a @ self.b]

    def result(self):
        return self.run()


class Conv2d(Matmul):
    def __init__(self, task, tensors):
        self.x, self.weight, self.dy = (tensor(tensors[name]) for name in ("x", "weight", "dy"))
        self.padding = task["kernel"] // 2
        self.forward = task["kind"] == "conv2d-forward"

    def run(self):
        if self.forward:
            return [F.conv2d(self.x, self.weight, padding=self.padding)]
        gradients = torch.ops.aten.convolution_backward(
            self.dy,
            self.x,
            self.weight,
            None,
            [1, 1],
            [self.padding] * 2,
            [1, 1],
            False,
            [0, 0],
            1,
            [True, True, False],
        )
        return list(gradients[:2])


class Step:
    def __init__(self, task, tensors):
        self.x, self.y = tensor(tensors["x"]), torch.tensor(tensors["y"], device=device)
        self.initial = {name: tensor(sent) for name, sent in tensors["parameters"].items()}
        self.layers, self.lr, self.compared = tensors["layers"], tensors["lr"], tensors["compared"]
        self.begin()

    def begin(self):
        self.parameters = {name: value.clone().requires_grad_() for name, value in self.initial.items()}
        self.optimizer = torch.optim.SGD(self.parameters.values(), lr=self.lr)

    def forward(self, x):
        for layer in self.layers:
            kind, name = layer["type"], layer.get("name")
            if kind == "conv2d":
                weight, bias = self.parameters[name + ".weight"], self.parameters[name + ".bias"]
                x = F.conv2d(x, weight, bias, padding=layer.get("padding", 0))
            elif kind == "linear":
                x = F.linear(x, self.parameters[name + ".weight"], self.parameters[name + ".bias"])
            elif kind == "avgpool2d":
                x = F.avg_pool2d(x, layer["kernel"])
            elif kind == "relu":
                x = F.relu(x)
            elif kind == "flatten":
                x = x.flatten(1)
            elif kind == "gpt":
                x = self.gpt(layer, x)
            else:
                raise ValueError("no layer %s is written for PyTorch" % kind)
        return x

    def gpt(self, layer, ids):
        channels, heads = layer["channels"], layer["heads"]
        samples, length = ids.shape
        future = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
        x = self.parameters["wte"][ids] + self.parameters["wpe"][:length]
        for block in range(layer["blocks"]):
            name = "h.%d." % block
            qkv = self.linear(name + "attn.qkv", self.norm(name + "ln1", x, layer["eps"]))
            q, k, v = qkv.reshape(samples, length, 3, heads, channels // heads).permute(2, 0, 3, 1, 4)
            mixed = self.attention(q, k, v, future).transpose(1, 2).reshape(samples, length, channels)
            x = x + self.linear(name + "attn.proj", mixed)
            hidden = F.gelu(self.linear(name + "mlp.fc", self.norm(name + "ln2", x, layer["eps"])), approximate="tanh")
            x = x + self.linear(name + "mlp.proj", hidden)
        return F.linear(self.norm("lnf", x, layer["eps"]), self.parameters["wte"])

    def attention(self, q, k, v, future):
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).masked_fill(future, float("-inf"))
        return scores.softmax(-1) @ v

    def linear(self, name, x):
        return F.linear(x, self.parameters[name + ".weight"], self.parameters[name + ".bias"])

    def norm(self, name, x, eps):
        return F.layer_norm(x, x.shape[-1:], self.parameters[name + ".weight"], self.parameters[name + ".bias"], eps)

    def run(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.forward(self.x).flatten(0, -2), self.y)
        loss.backward()
        self.optimizer.step()
        return [loss.detach()]

    def result(self):
        self.begin()
        losses = [float(self.run()[0]) for _ in range(self.compared + 1)]
        return [torch.tensor([loss - losses[0] for loss in losses[1:]])]


class Update:
    """Clipping and AdamW on one flat vector, as a step of a large model does."""

    def __init__(self, task, tensors):
        self.parameter = torch.zeros(task["count"]).normal_(0, 0.02).requires_grad_()
        self.parameter.grad = torch.randn(task["count"])
        self.clip = task["clip"]
        self.optimizer = torch.optim.AdamW([self.parameter], lr=task["lr"], weight_decay=task["decay"])

    def run(self):
        torch.nn.utils.clip_grad_norm_([self.parameter], self.clip)
        self.optimizer.step()


KINDS = {"matmul": Matmul, "conv2d-forward": Conv2d, "conv2d-backward": Conv2d, "step": Step, "update": Update}
prepared = []


def hello(_):
    a, b = torch.randn(1024, 1024, device=device), torch.randn(1024, 1024, device=device)
    timed_once(lambda: a @ b)
    best = min(timed_once(lambda: a @ b) for _ in range(10))
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    return {"version": torch.__version__, "gflops": 2 * 1024**3 / best / 1e9, "device": name}


def timed_once(work):
    finish()
    start = time.perf_counter()
    work()
    finish()
    return time.perf_counter() - start


def prepare(question):
    prepared.append(KINDS[question["task"]["kind"]](question["task"], question["tensors"]))
    return {"id": len(prepared) - 1}


def result(question):
    values = torch.cat([part.flatten() for part in prepared[question["id"]].result()]).cpu().numpy()
    return {"values": base64.b64encode(values.astype(numpy.float32).tobytes()).decode()}


def timed(question):
    work = prepared[question["id"]]
    finish()
    start = time.perf_counter()
    for _ in range(question["repeats"]):
        work.run()
    finish()
    return {"ms": 1000 * (time.perf_counter() - start)}


def close(question):
    prepared[question["id"]] = None
    return {}


ANSWERS = {"hello": hello, "prepare": prepare, "result": result, "time": timed, "close": close}

for line in sys.stdin:
    question = json.loads(line)
    try:
        answer = ANSWERS[question["ask"]](question)
    except Exception as error:  # said to whoever asked
        answer = {"error": "%s: %s" % (type(error).__name__, error)}
    print(json.dumps(answer), flush=True)
