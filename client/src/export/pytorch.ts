// A trained model as a PyTorch program. Its state_dict has the names of the safetensors file beside it. It prepares
// inputs as training did and predicts from the command line. Texts of the model enter the program as JSON literals
// alone, because models come from other people.
import {
  layerShapes,
  type ModelFile,
  type OperatorLayer,
  type PlacedLayer,
  rotaryFrequencies,
  takesTokens,
} from '@starling-grid/model'

type PythonRow<T extends OperatorLayer['type']> = (parts: {
  readonly layer: Extract<OperatorLayer, { readonly type: T }>
  /** Python names of its inputs */
  readonly x: readonly string[]
  /** role of a parameter → the Python expression of it; 'None' where the layer has none */
  readonly p: (role: string) => string
  readonly placed: PlacedLayer
}) => string

const numbered = (value: number): string => (Number.isInteger(value) ? `${value}.0` : String(value))

/** Operator → the expression of its output. */
const ROWS: { readonly [T in OperatorLayer['type']]: PythonRow<T> } = {
  linear: ({ layer, x, p }) => `F.linear(${x[0]}, ${p('weight')}${layer.transposed ? '.T' : ''}, ${p('bias')})`,
  conv2d: ({ layer, x, p }) =>
    `F.conv2d(${x[0]}, ${p('weight')}, ${p('bias')}, stride=${layer.stride}, padding=${layer.padding}, ` +
    `groups=${layer.groups})`,
  maxpool2d: ({ layer, x }) => `F.max_pool2d(${x[0]}, ${layer.kernel}, ${layer.stride}, ${layer.padding})`,
  avgpool2d: ({ layer, x }) => `F.avg_pool2d(${x[0]}, ${layer.kernel}, ${layer.stride}, ${layer.padding})`,
  globalavgpool: ({ x }) => `${x[0]}.flatten(2).mean(-1)`,
  transpose: ({ x }) => `${x[0]}.flatten(2).transpose(1, 2)`,
  class_token: ({ x, p }) => `torch.cat((${p('weight')}.view(1, 1, -1).expand(len(${x[0]}), -1, -1), ${x[0]}), 1)`,
  first_token: ({ x }) => `${x[0]}[:, 0]`,
  upsample: ({ layer, x }) => `F.interpolate(${x[0]}, scale_factor=${layer.scale}, mode="nearest")`,
  relu: ({ x }) => `F.relu(${x[0]})`,
  gelu: ({ x }) => `F.gelu(${x[0]})`,
  gelu_tanh: ({ x }) => `F.gelu(${x[0]}, approximate="tanh")`,
  silu: ({ x }) => `F.silu(${x[0]})`,
  tanh: ({ x }) => `torch.tanh(${x[0]})`,
  sigmoid: ({ x }) => `torch.sigmoid(${x[0]})`,
  softmax: ({ x }) => `F.softmax(${x[0]}, -1)`,
  leaky_relu: ({ layer, x }) => `F.leaky_relu(${x[0]}, ${layer.negative_slope})`,
  dropout: ({ layer, x }) => `F.dropout(${x[0]}, ${numbered(layer.p)}, self.training)`,
  batchnorm2d: ({ layer, x, p }) =>
    `F.batch_norm(${x[0]}, ${p('runningMean')}, ${p('runningVariance')}, ${p('weight')}, ${p('bias')}, ` +
    `self.training, ${layer.momentum}, ${layer.eps})`,
  layernorm: ({ layer, x, p, placed }) =>
    `F.layer_norm(${x[0]}, (${placed.x.at(-1)},), ${p('weight')}, ${p('bias')}, ${layer.eps})`,
  rmsnorm: ({ layer, x, p, placed }) =>
    `rms_norm(${x[0]}, ${layer.size ?? placed.x.at(-1)}, ${p('weight')}, ${layer.eps})`,
  groupnorm: ({ layer, x, p }) => `F.group_norm(${x[0]}, ${layer.groups}, ${p('weight')}, ${p('bias')}, ${layer.eps})`,
  flatten: ({ x }) => `${x[0]}.flatten(1)`,
  embedding: ({ x, p }) => `F.embedding(${x[0]}, ${p('weight')})`,
  positions: ({ x, p, placed }) => `${x[0]} + ${p('weight')}[..., :${placed.x[0]}, :]`,
  rotary: ({ layer, x, placed }) =>
    `rotary((${x.join(', ')}), ${layer.heads}, ${layer.kv_heads}, ` +
    `[${rotaryFrequencies(layer.rope, (placed.x[1] ?? 0) / layer.heads).join(', ')}])`,
  swiglu: ({ x }) => `F.silu(${x[0]}) * ${x[1]}`,
  scale: ({ layer, x }) => `${x[0]} * ${numbered(layer.factor)}`,
  attention: ({ layer, x }) => `attention(${x[0]}, ${layer.heads}, ${layer.causal ? 'True' : 'False'})`,
  add: ({ x }) => x.join(' + '),
  concat: ({ x }) => `torch.cat((${x.join(', ')}), 1)`,
}

/** Operators that torch has no single function for. */
const OPERATORS = `def attention(x, heads, causal):
    """x (N, T, 3 * channels): queries, keys and values side by side, each split into heads."""
    n, length, wide = x.shape
    q, k, v = (part.view(n, length, heads, -1).transpose(1, 2) for part in x.split(wide // 3, -1))
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if causal:
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return (F.softmax(scores, -1) @ v).transpose(1, 2).reshape(n, length, wide // 3)


def rms_norm(x, size, weight, eps):
    runs = x.reshape(*x.shape[:-1], -1, size)
    return (runs * torch.rsqrt(runs.pow(2).mean(-1, keepdim=True) + eps) * weight).reshape(x.shape)


def rotary(parts, heads, kv_heads, frequencies):
    """Queries, keys and values (N, T, heads * D), the first two turned by position -> (N, T, 3 * channels)."""
    n, length, channels = parts[0].shape
    size = channels // heads
    positions = torch.arange(length, dtype=torch.float64)[:, None] * torch.tensor(frequencies, dtype=torch.float64)
    cosine, sine = (table.to(parts[0])[:, None] for table in (positions.cos(), positions.sin()))
    packed = []
    for i, part in enumerate(parts):
        own = heads if i == 0 else kv_heads
        x = part.reshape(n, length, own, size)
        if i < 2:
            a, b = x.split(size // 2, -1)
            x = torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)
        packed.append(x.repeat_interleave(heads // own, 2).reshape(n, length, channels))
    return torch.cat(packed, -1)`

/** `weights`: name of the safetensors file beside the program. */
export function pytorchProgram(model: ModelFile, weights: string): string {
  const placed = layerShapes(model.spec)
  const lines = placed.map((layer, i) => `        v${i + 1} = ${expressionOf(layer)}`)
  return [head(model, weights), states(placed), ...lines, `        return v${placed.length}`, '', tail(model)].join(
    '\n',
  )
}

function expressionOf(placed: PlacedLayer): string {
  const names = new Map(placed.parameters.map(({ role, name }) => [role, name]))
  const p = (role: string): string => {
    const name = names.get(role)
    return name === undefined ? 'None' : `self.tensor(${JSON.stringify(name)})`
  }
  // The table pairs each type with its own row, which the compiler cannot follow through a union.
  const row = ROWS[placed.layer.type] as PythonRow<OperatorLayer['type']>
  return row({ layer: placed.layer, x: placed.inputs.map((value) => `v${value}`), p, placed })
}

function states(placed: readonly PlacedLayer[]): string {
  const own = placed.flatMap(({ parameters }) =>
    parameters.filter(({ tied, kind }) => tied !== true && kind !== 'constant'),
  )
  const rows = own.map(({ name, shape: held, kind, transposed }) => {
    const shape = transposed ? held.toReversed() : held
    const size = `(${shape.join(', ')}${shape.length === 1 ? ',' : ''})`
    const trained = kind === 'statistic' ? 'False' : 'True'
    return `        self.hold(${JSON.stringify(name)}, torch.zeros(${size}), trained=${trained})`
  })
  return [...rows, '', '    def forward(self, v0):'].join('\n')
}

function head({ spec, signature, vocabulary }: ModelFile, weights: string): string {
  return `"""${pythonText(spec.name)}: a model that was trained with Starling, as a PyTorch module.

Needs torch 1.12 or later; Pillow and numpy for images. It takes rows, images, or the beginning of a text:
    python3 THIS_FILE 5.1,3.5,1.4,0.2
In a program: import load and prepare from here; load()(prepare(samples))
"""
import json
import os
import struct
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

WEIGHTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), ${JSON.stringify(weights)})
SIGNATURE = json.loads(${pythonString(JSON.stringify(signature))})
LOSS = ${JSON.stringify(spec.loss)}
VOCABULARY = ${vocabulary === undefined ? 'None' : `json.loads(${pythonString(JSON.stringify(vocabulary))})`}


${OPERATORS}


class Model(nn.Module):
    def hold(self, name, values, trained):
        """Holds a tensor under its dotted name, which is its key in state_dict."""
        *path, last = name.split(".")
        module = self
        for part in path:  # not add_module, which refuses names such as "type"
            module = module._modules.setdefault(part, nn.Module())
        if trained:
            module._parameters[last] = nn.Parameter(values)
        else:
            module._buffers[last] = values

    def tensor(self, name):
        *path, last = name.split(".")
        module = self
        for part in path:
            module = module._modules[part]
        return module._parameters[last] if last in module._parameters else module._buffers[last]

    def __init__(self):
        super().__init__()`
}

// oxlint-disable-next-line max-lines-per-function -- the text of one Python program
function tail({ spec }: ModelFile): string {
  return `
def tensors(path):
    """Reads a safetensors file of float32 tensors: length of the header, header, data."""
    with open(path, "rb") as file:
        raw = file.read()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    data = memoryview(bytearray(raw[8 + length :]))
    return {
        name: torch.frombuffer(data[slice(*entry["data_offsets"])], dtype=torch.float32).reshape(entry["shape"])
        for name, entry in header.items()
    }


def load(path=WEIGHTS):
    model = Model()
    model.load_state_dict(tensors(path), strict=True)
    return model.eval()


def prepare(stored):
    """Samples as the dataset has them (pixels 0 to 255, cells of a table) -> what the model takes."""
    ${takesTokens(spec) ? 'return stored.long()' : preparation()}


def image(path):
    from PIL import Image
    import numpy

    channels, height, width = SIGNATURE.get("storedShape", SIGNATURE["inputShape"])
    picture = Image.open(path).convert("L" if channels == 1 else "RGB")
    if picture.size != (width, height):
        sys.exit(f"expected {width} x {height} pixels, got {picture.size[0]} x {picture.size[1]}: {path}")
    pixels = torch.from_numpy(numpy.asarray(picture).copy()).float()
    return pixels.reshape(height, width, channels).permute(2, 0, 1)


def sample(text):
    if os.path.exists(text):
        return image(text)
    shape = SIGNATURE.get("storedShape", SIGNATURE["inputShape"])
    return torch.tensor([float(cell) for cell in text.split(",")]).reshape(shape)


def answers(outputs):
    kind = SIGNATURE.get("target", "classes")
    if kind == "labels" or (kind == "classes" and LOSS == "bce_with_logits"):
        outputs = outputs.sigmoid()
    elif kind == "classes":
        outputs = outputs.clamp(0, 1) if LOSS == "mse" else outputs.softmax(-1)
    names = SIGNATURE.get("targetNames") or SIGNATURE.get("classNames") or []
    values = outputs.flatten()[: SIGNATURE["classes"]].tolist()
    rows = [(names[i] if i < len(names) else i, value) for i, value in enumerate(values)]
    return sorted(rows, key=lambda row: -row[1])[:5] if kind == "classes" else rows


def write(model, prompt, count=200):
    if VOCABULARY is not None:
        characters = list(VOCABULARY)
        size = len(characters)
        unknown = sorted(set(prompt) - set(characters))
        if unknown:
            sys.exit(f"expected characters of {VOCABULARY!r}, got {unknown[0]!r}; leave it out")
        tokens = [characters.index(character) for character in prompt]
    elif SIGNATURE.get("tokens") == "bytes":
        size, tokens = 256, list(prompt.encode())
    else:
        sys.exit("expected a model of characters or bytes, got one of other tokens; give load() token numbers")
    if not tokens:
        sys.exit("expected a prompt, got an empty one; write a line of it")
    context = SIGNATURE["inputShape"][0]
    for _ in range(count):
        seen = tokens[-context:]
        logits = model(torch.tensor([seen + [0] * (context - len(seen))]))[0, len(seen) - 1, :size]
        tokens.append(int(torch.multinomial(F.softmax(logits / 0.8, -1), 1)))
    if VOCABULARY is None:
        return bytes(tokens).decode(errors="replace")
    return "".join(characters[token] for token in tokens)


if __name__ == "__main__":
    model = load()
    with torch.no_grad():
        for text in sys.argv[1:]:
            ${
              takesTokens(spec)
                ? 'print(write(model, text))'
                : `print(text)
            for name, value in answers(model(prepare(sample(text)[None]))[0]):
                print(f"  {name}  {value:.6g}")`
            }
`
}

function preparation(): string {
  return `shape = SIGNATURE["inputShape"]
    x = stored.float() * SIGNATURE["inputScale"]
    if len(shape) == 3:
        top, left = (x.shape[-2] - shape[1]) // 2, (x.shape[-1] - shape[2]) // 2
        x = x[..., top : top + shape[1], left : left + shape[2]]
    normalize = SIGNATURE.get("normalize")
    if normalize is not None:
        mean, deviation = (torch.tensor(normalize[key])[:, None] for key in ("mean", "deviation"))
        x = ((x.reshape(len(x), len(mean), -1) - mean) / deviation).reshape(x.shape)
    return x`
}

/** A literal that no content ends: JSON text as a Python string. */
function pythonString(text: string): string {
  return JSON.stringify(text)
}

/** For a docstring: names of models have none of what would end it. */
function pythonText(text: string): string {
  return text.replaceAll(/["\\]/g, '')
}
