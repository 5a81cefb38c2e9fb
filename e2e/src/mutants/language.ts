// Mutants of language models: positions, kept keys and values, stored parameters, examples.
import { type Mutant, mutantsOf } from './mutant.ts'

export const LANGUAGE: readonly Mutant[] = [
  ...mutantsOf(
    'WGSL kernels',
    'shaders/kernels/rotary.wgsl',
    ['gpu-language'],
    [
      ['backward turns the same way', 'r % LENGTH, c, -1.0)', 'r % LENGTH, c, 1.0)'],
      ['every head has keys of its own', '(r * OWN + head / SHARERS) * HEAD', '(r * OWN + head % OWN) * HEAD'],
    ],
  ),
  ...mutantsOf(
    'WGSL kernels',
    'shaders/kernels/cached-attention.wgsl',
    ['gpu-language'],
    [
      [
        'a token sees the place behind it',
        'if (key > u32(places[r])) { return; }',
        'if (key >= u32(places[r])) { return; }',
      ],
    ],
  ),
  ...mutantsOf(
    'WGSL kernels',
    'shaders/kernels/unpack.wgsl',
    ['gpu-packed'],
    [
      ['four bits have the other order', 'vec4u(0u, 4u, 8u, 12u)', 'vec4u(4u, 0u, 12u, 8u)'],
      ['tiny halves are zero', 'bitcast<vec4u>(0x1p-24f * vec4f(size))', 'vec4u()'],
      ['a piece of a table begins at its first row', 'u32(ids[row]) - FIRST', 'u32(ids[row])'],
    ],
  ),
  ...mutantsOf(
    'language models',
    'volunteer/src/graph/packed.ts',
    ['gpu-packed'],
    [['pieces of a packed table begin elsewhere', 'start: (start / columns) * words', 'start']],
  ),
  ...mutantsOf(
    'language models',
    'volunteer/src/graph/attempts.ts',
    ['packed-plan'],
    [
      ['a base is packed although there is room', '(packs ? canPack', '(canPack ? packs'],
      ['what is asked to lie in pieces lies whole', '(cuts || packing.pieces !== true)', 'true'],
    ],
  ),
  ...mutantsOf(
    'language models',
    'volunteer/src/own-limits.ts',
    ['packed-plan'],
    [['a base is counted as f32', "storage === 'f32' ? undefined : storage", 'undefined']],
  ),
  ...mutantsOf(
    'language models',
    'volunteer/src/graph/recompute.ts',
    ['volunteer/test/recompute'],
    [['only the queries are computed again', "(kernel === 'rotary.forward' && name === 'qkv')", 'false']],
  ),
  ...mutantsOf(
    'language models',
    'model/src/layers/causal-lm.ts',
    ['language-models'],
    [
      ['adapters have no scale', 'factor: alpha / rank', 'factor: 1'],
      ['queries and keys have no norm', "this.#config.model_type === 'qwen3'", 'false'],
    ],
  ),
  ...mutantsOf(
    'language models',
    'model/src/angles.ts',
    ['language-models'],
    [['long waves are not stretched', 'if (turns < low) return frequency / factor', '']],
  ),
  ...mutantsOf(
    'language models',
    'model/src/base-store.ts',
    ['published-models'],
    [['four bits have the other order', '<< (4 * (i & 1))', '<< (4 * (1 - (i & 1)))']],
  ),
  ...mutantsOf(
    'language models',
    'coordinator/src/datasets/packed-samples.ts',
    ['published-models'],
    [['a prompt is learned by one token', 'learned[i + 1] === true', 'learned[i] === true']],
  ),
  ...mutantsOf(
    'language models',
    'volunteer/src/recovery/base-fetch.ts',
    ['base-fetch'],
    [
      ['what a member gives is believed', 'if ((await sha256Of(bytes)) === name) return bytes', 'return bytes'],
      ['the coordinator serves while a link may still open', 'await this.#change()', 'return undefined'],
      ['a source that never has anything is asked for ever', 'clock.now() - since > LATE_MS', 'false'],
      ['what a source gave does not count', 'this.#lateSince.delete(member)', ''],
      ['a liar is asked again over a new link', 'this.#shunned.add(member)', ''],
      ['a lost source is not sought again', 'void this.#seekAgain()', ''],
    ],
  ),
  ...mutantsOf(
    'language models',
    'volunteer/src/recovery/base-server.ts',
    ['base-fetch'],
    [
      ['shards of other jobs are given', 'if (this.#names?.has(name) === false) return undefined', ''],
      ['what may still come is refused', '(isComing() ? LATER : undefined)', 'undefined'],
      ['a herd is served at once', 'if (this.#served.size >= MAX_ASKERS) return false', ''],
    ],
  ),
  ...mutantsOf(
    'language models',
    'volunteer/src/recovery/upload-share.ts',
    ['base-fetch'],
    [['training may want for upload', 'return false', 'return true']],
  ),
  ...mutantsOf(
    'language models',
    'coordinator/src/net/sessions.ts',
    ['coordinator/test/introductions'],
    [['a newcomer is sent to one that is gone', '(id) => this.#byId.get(id)?.presence?.job() === job', '() => true']],
  ),
  ...mutantsOf(
    'language models',
    'coordinator/src/host/introductions.ts',
    ['coordinator/test/introductions'],
    [
      [
        'a newcomer is introduced for ever',
        'seeker !== undefined && at - seeker.at < SEEKING_MS',
        'seeker !== undefined',
      ],
      [
        'newcomers wait for each other in a circle',
        '(place < 0 ? all : all.slice(0, place))',
        'all.filter((id) => id !== newcomer)',
      ],
    ],
  ),
  ...mutantsOf(
    'language models',
    'volunteer/src/graph/window-decoder.ts',
    ['window-decoder'],
    [['of a long text its beginning is seen', 'tokens.slice(-context)', 'tokens.slice(0, context)']],
  ),
  ...mutantsOf(
    'language models',
    'client-web/src/write/write-panel.tsx',
    ['client-web/test/write-panel'],
    [
      ['a model is offered that only its owner may have', "if (detail === 'totals')", 'if (false)'],
      ['a refusal is not shown', 'if (state.failure === undefined) return null', 'return null'],
    ],
  ),
  ...mutantsOf(
    'language models',
    'client-web/src/write/write-worker.ts',
    ['a-page-writes-while-a-job-trains'],
    [
      [
        'a newer version is loaded and not used',
        'model.decoder.loadParameters(file.parameters)',
        'void file.parameters',
      ],
      [
        'Stop is not heard',
        "if (data.type === 'stop') isStopped = true",
        "if (data.type === 'stop') isStopped = false",
      ],
    ],
  ),
]
