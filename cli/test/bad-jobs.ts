// Bad job files and what each is refused with: a whole file, or a good one (job-file.test.ts) with a text replaced.
export interface BadJob {
  readonly change: string | readonly [from: string, to: string]
  /** a line for each mistake: file, line, column, path, expected, found, hint */
  readonly refused: string
}

/** lines of the good job */
const STOP = 'stop: { epochs: 2 }'
const SIZES = '\nblockSamples: 8\nbatchBlocks: 4\n'
const BETWEEN = `\ndataset:\n  source: digits\noptimizer:\n  type: sgd\n  lr: 0.1\n  momentum: 0.9${SIZES}`

/** as a mistake lists them */
const LAYERS =
  'linear, conv2d, flatten, globalavgpool, dropout, batchnorm2d, layernorm, rmsnorm, groupnorm, embedding, ' +
  'positions, transpose, class_token, first_token, upsample, attention, scale, maxpool2d, avgpool2d, relu, gelu, ' +
  'gelu_tanh, silu, tanh, sigmoid, softmax, leaky_relu, ' +
  'residual, parallel, multihead_attention, gpt, vit, resnet, causal_lm'

export const BAD_JOBS: readonly BadJob[] = [
  { change: ['name: Digits\n', ''], refused: 'job.yaml:2:1: name: expected text of 1 to 80 characters, got nothing' },
  { change: ['name: Digits', "name: ''"], refused: 'job.yaml:2:1: name: expected text of 1 to 80 characters, got ""' },
  { change: ['name: Digits', 'name: 17'], refused: 'job.yaml:2:1: name: expected text of 1 to 80 characters, got 17' },
  {
    change: ['name: Digits', 'nane: Digits'],
    refused: 'job.yaml:2:1: nane: expected a known field, got "nane"; did you mean `name`?',
  },
  {
    change: ['name: Digits', 'name: [Digits]'],
    refused: 'job.yaml:2:1: name: expected text of 1 to 80 characters, got ["Digits"]',
  },
  { change: ['owner: a test\n', ''], refused: 'job.yaml:2:1: owner: expected text of 1 to 80 characters, got nothing' },
  {
    change: ['owner: a test', 'owner: null'],
    refused: 'job.yaml:3:1: owner: expected text of 1 to 80 characters, got null',
  },
  {
    change: ['purpose: Reads digits.\n', ''],
    refused: 'job.yaml:2:1: purpose: expected text of 0 to 400 characters, got nothing',
  },
  {
    change: ['seed: 1', 'seed: 1\ncolour: 3'],
    refused: 'job.yaml:22:1: colour: expected a known field, got "colour"; docs/JOBS.md lists all fields',
  },
  {
    change: ['seed: 1', 'seed: 1\npublic: yes'],
    refused: 'job.yaml:22:1: public: expected true or false, got "yes"; write true or false',
  },
  {
    change: ['seed: 1', 'seed: 1\nPublic: true'],
    refused: 'job.yaml:22:1: Public: expected a known field, got "Public"; did you mean `public`?',
  },
  {
    change: ['seed: 1', 'seed: -1'],
    refused: 'job.yaml:21:1: seed: expected a whole number from 0 to 4294967295, got -1',
  },
  {
    change: ['seed: 1', 'seed: 4294967296'],
    refused: 'job.yaml:21:1: seed: expected a whole number from 0 to 4294967295, got 4294967296',
  },
  {
    change: ['seed: 1', "seed: '1'"],
    refused: 'job.yaml:21:1: seed: expected a whole number from 0 to 4294967295, got "1"; write it without quotes',
  },
  {
    change: ['seed: 1', 'seed: 1.5'],
    refused: 'job.yaml:21:1: seed: expected a whole number from 0 to 4294967295, got 1.5',
  },
  {
    change: ['seed: 1', 'seeds: 1'],
    refused: 'job.yaml:21:1: seeds: expected a known field, got "seeds"; did you mean `seed`?',
  },
  {
    change: ['mode: ring', 'mode: rign'],
    refused: 'job.yaml:22:1: mode: expected one of auto, ring, local, async, got "rign"; did you mean `ring`?',
  },
  {
    change: ['mode: ring', 'mode: Ring'],
    refused: 'job.yaml:22:1: mode: expected one of auto, ring, local, async, got "Ring"; did you mean `ring`?',
  },
  {
    change: ['mode: ring', 'mode: parallel'],
    refused: 'job.yaml:22:1: mode: expected one of auto, ring, local, async, got "parallel"',
  },
  {
    change: ['mode: ring\n', ''],
    refused: 'job.yaml:2:1: mode: expected one of auto, ring, local, async, got nothing',
  },
  {
    change: ['blockSamples: 8', 'blockSamples: 0'],
    refused: 'job.yaml:18:1: blockSamples: expected a whole number from 1 to 4096, got 0',
  },
  {
    change: ['blockSamples: 8', 'blockSamples: 5000'],
    refused: 'job.yaml:18:1: blockSamples: expected a whole number from 1 to 4096, got 5000',
  },
  {
    change: ['blockSamples: 8', 'blocksSample: 8'],
    refused: 'job.yaml:18:1: blocksSample: expected a known field, got "blocksSample"; did you mean `blockSamples`?',
  },
  {
    change: ['batchBlocks: 4', 'batchBlocks: 257'],
    refused: 'job.yaml:19:1: batchBlocks: expected a whole number from 1 to 256, got 257',
  },
  {
    change: ['batchBlocks: 4', 'batchBlocks: 4\ngradientAccumulation: 65'],
    refused:
      'job.yaml:20:1: gradientAccumulation: expected at most 256 blocks in a step, got 65 × 4 = 260; make ' +
      '`blockSamples` larger, or write less',
  },
  {
    change: ['batchBlocks: 4', 'batchBlocks: 4\ngradient_accumulation_steps: 2'],
    refused:
      'job.yaml:20:1: gradient_accumulation_steps: expected a known field, got "gradient_accumulation_steps"; write ' +
      '`gradientAccumulation`',
  },
  {
    change: ['batchBlocks: 4', 'batchBlock: 4'],
    refused: 'job.yaml:19:1: batchBlock: expected a known field, got "batchBlock"; did you mean `batchBlocks`?',
  },
  {
    change: ['batchBlocks: 4', 'batch_blocks: 4'],
    refused: 'job.yaml:19:1: batch_blocks: expected a known field, got "batch_blocks"; did you mean `batchBlocks`?',
  },
  {
    change: ['batchBlocks: 4', 'batchSize: 32'],
    refused:
      'job.yaml:19:1: batchSize: expected a known field, got "batchSize"; write `blockSamples` and `batchBlocks`\n' +
      'job.yaml:2:1: batchBlocks: expected a whole number from 1 to 256, got nothing',
  },
  {
    change: [STOP, 'stop: { epochs: 0 }'],
    refused: 'job.yaml:20:9: stop.epochs: expected a whole number from 1 to 10000, got 0',
  },
  {
    change: [STOP, 'stop: { epochs: many }'],
    refused: 'job.yaml:20:9: stop.epochs: expected a whole number from 1 to 10000, got "many"',
  },
  { change: [`${STOP}\n`, ''], refused: 'job.yaml:2:1: stop: expected an object, got nothing' },
  { change: [STOP, 'stop: 2'], refused: 'job.yaml:20:1: stop: expected an object, got 2' },
  {
    change: [STOP, 'epochs: 2'],
    refused: 'job.yaml:20:1: epochs: expected a known field, got "epochs"; write `stop.epochs`',
  },
  {
    change: [STOP, `${STOP}\nmaxSteps: 40`],
    refused: 'job.yaml:21:1: maxSteps: expected a known field, got "maxSteps"; write `stop.steps`',
  },
  {
    change: [STOP, `${STOP}\nvalidateEvery: 2`],
    refused: 'job.yaml:21:1: validateEvery: expected a known field, got "validateEvery"; write `evaluate.everyEpochs`',
  },
  {
    change: [STOP, 'stop: {}'],
    refused:
      'job.yaml:20:1: stop: expected one of `steps`, `epochs`, `minutes` at least, got none; ' +
      'name the most that the run may take',
  },
  {
    change: [STOP, 'stop: { metric: loss, target: 0.1 }'],
    refused:
      'job.yaml:20:1: stop: expected one of `steps`, `epochs`, `minutes` at least, got `metric` and `target`; ' +
      'name the most that the run may take',
  },
  {
    change: [STOP, 'stop: { step: 2 }'],
    refused: 'job.yaml:20:9: stop.step: expected a known field, got "step"; did you mean `steps`?',
  },
  {
    change: [STOP, 'stop: { steps: 1e9 }'],
    refused: 'job.yaml:20:9: stop.steps: expected a whole number from 1 to 100000000, got 1000000000',
  },
  {
    change: [STOP, 'stop: { minutes: 0 }'],
    refused: 'job.yaml:20:9: stop.minutes: expected a number above 0 to 1000000, got 0',
  },
  {
    change: [STOP, 'stop: { minutes: 1h }'],
    refused: 'job.yaml:20:9: stop.minutes: expected a number above 0 to 1000000, got "1h"',
  },
  {
    change: [STOP, 'stop: { epochs: 2, metric: acuracy }'],
    refused:
      'job.yaml:20:20: stop.metric: expected one of loss, accuracy, top-5, perplexity, MAE, R2, F1, got "acuracy"; ' +
      'did you mean `accuracy`?',
  },
  {
    change: [STOP, 'stop: { epochs: 2, target: 0.97 }'],
    refused: 'job.yaml:20:1: stop.metric: expected one of loss, accuracy, top-5 beside `target`, got nothing',
  },
  {
    change: [STOP, 'stop: { epochs: 2, metric: accuracy, target: 97 }'],
    refused: 'job.yaml:20:38: stop.target: expected a target for accuracy of at most 1, got 97; write 0.97 for 97 %',
  },
  {
    change: [STOP, 'stop: { epochs: 2, metric: loss, target: low }'],
    refused: 'job.yaml:20:34: stop.target: expected a number from 0 to 1000000, got "low"',
  },
  {
    change: [STOP, 'stop: { epochs: 2, patience: 0 }'],
    refused: 'job.yaml:20:20: stop.patience: expected a whole number from 1 to 10000, got 0',
  },
  {
    change: [`loss: cross_entropy${BETWEEN}${STOP}`, `loss: mse${BETWEEN}stop: { epochs: 2, metric: accuracy }`],
    refused: 'job.yaml:20:20: stop.metric: expected one of loss, MAE, R2, which this model has, got "accuracy"',
  },
  {
    change: [STOP, 'stop: { epochs: 2, metric: perplexity }'],
    refused:
      'job.yaml:20:20: stop.metric: expected one of loss, accuracy, top-5, which this model has, got "perplexity"',
  },
  {
    change: [STOP, 'stop: { epochs: 2, metric: R² }'],
    refused:
      'job.yaml:20:20: stop.metric: expected one of loss, accuracy, top-5, perplexity, MAE, R2, F1, got "R²"; ' +
      'did you mean `R2`?',
  },
  {
    change: [STOP, 'stop: { epochs: 2, metric: top-5, target: 99 }'],
    refused: 'job.yaml:20:35: stop.target: expected a target for top-5 of at most 1, got 99; write 0.99 for 99 %',
  },
  {
    change: [STOP, `${STOP}\nweakScaling: { warmup: -1 }`],
    refused: 'job.yaml:21:16: weakScaling.warmup: expected a whole number from 0 to 100000000, got -1',
  },
  {
    change: ['mode: ring', 'mode: auto\nweakScaling: {}'],
    refused:
      'job.yaml:22:1: mode: expected ring in a job with `weakScaling`, got auto; ' +
      'write ring, or leave `weakScaling` out',
  },
  {
    change: [`momentum: 0.9${SIZES}${STOP}`, `schedule: { type: linear, to: 0 }${SIZES}stop: { minutes: 5 }`],
    refused:
      'job.yaml:17:3: optimizer.schedule.steps: expected the step of its end in a job that ends by `stop.minutes`, ' +
      'got nothing; write it, or name `stop.steps` or `stop.epochs`',
  },
  {
    change: [STOP, `${STOP}\nevaluate: { everyEpochs: 0 }`],
    refused: 'job.yaml:21:13: evaluate.everyEpochs: expected a whole number from 1 to 10000, got 0',
  },
  {
    change: [STOP, `${STOP}\nevaluate: { everySteps: 20, everyEpochs: 1 }`],
    refused: 'job.yaml:21:1: evaluate: expected one of `everySteps` and `everyEpochs`, got both; leave one out',
  },
  {
    change: [STOP, `${STOP}\nevaluate: { everySteps: 1.5 }`],
    refused: 'job.yaml:21:13: evaluate.everySteps: expected a whole number from 1 to 100000000, got 1.5',
  },
  {
    change: [STOP, `${STOP}\nkeep: { last: 1 }`],
    refused: 'job.yaml:21:9: keep.last: expected a whole number from 2 to 20, got 1',
  },
  {
    change: [STOP, `${STOP}\nkeep: { bset: 2 }`],
    refused: 'job.yaml:21:9: keep.bset: expected a known field, got "bset"; did you mean `best`?',
  },
  {
    change: [STOP, `${STOP}\nevaluate: { everyStep: 20 }`],
    refused: 'job.yaml:21:13: evaluate.everyStep: expected a known field, got "everyStep"; did you mean `everySteps`?',
  },
  {
    change: [STOP, `${STOP}\nevaluate: { everyEpoch: 2 }`],
    refused:
      'job.yaml:21:13: evaluate.everyEpoch: expected a known field, got "everyEpoch"; did you mean `everyEpochs`?',
  },
  {
    change: [STOP, `${STOP}\nevalute: { everyEpochs: 2 }`],
    refused: 'job.yaml:21:1: evalute: expected a known field, got "evalute"; did you mean `evaluate`?',
  },
  {
    change: ['source: digits', 'source: digit'],
    refused:
      'job.yaml:13:3: dataset.source: expected one of named, digits, mnist, text, got "digit"; did you mean `digits`?',
  },
  {
    change: ['source: digits', 'sorce: digits'],
    refused:
      'job.yaml:12:1: dataset.source: expected one of named, digits, mnist, text, got nothing; is `sorce` meant for ' +
      'it?',
  },
  {
    change: ['source: digits', 'source: mnist'],
    refused: 'job.yaml:12:1: dataset.folder: expected text of 0 to 4096 characters, got nothing',
  },
  {
    change: ['source: digits', 'source: mnist\n  folder: 3'],
    refused: 'job.yaml:14:3: dataset.folder: expected text of 0 to 4096 characters, got 3',
  },
  {
    change: ['source: digits', 'source: imagenet'],
    refused: 'job.yaml:13:3: dataset.source: expected one of named, digits, mnist, text, got "imagenet"',
  },
  {
    change: ['source: digits', 'source: text\n  path: a.txt'],
    refused: 'job.yaml:12:1: dataset.tokens: expected characters, got nothing',
  },
  {
    change: ['source: digits', 'source: text\n  path: a.txt\n  tokens: character'],
    refused: 'job.yaml:15:3: dataset.tokens: expected characters, got "character"',
  },
  {
    change: ['source: digits', 'source: digits\n  folder: data'],
    refused: 'job.yaml:14:3: dataset.folder: expected a known field, got "folder"; known here: source',
  },
  {
    change: ['dataset:\n  source: digits', 'dataset: digits'],
    refused: 'job.yaml:12:1: dataset: expected an object with `source`, got "digits"',
  },
  {
    change: ['type: sgd', 'type: sdg'],
    refused: 'job.yaml:15:3: optimizer.type: expected one of sgd, adam, adamw, got "sdg"; did you mean `sgd`?',
  },
  {
    change: ['type: sgd', 'type: adamw'],
    refused:
      'job.yaml:17:3: optimizer.momentum: expected a known field, got "momentum"; known here: type, lr, betas, eps, ' +
      'weightDecay, decay, schedule',
  },
  {
    change: ['type: sgd', 'typ: sgd'],
    refused: 'job.yaml:14:1: optimizer.type: expected one of sgd, adam, adamw, got nothing; is `typ` meant for it?',
  },
  { change: ['lr: 0.1', 'lr: 0'], refused: 'job.yaml:16:3: optimizer.lr: expected a number above 0 to 1000000, got 0' },
  {
    change: ['lr: 0.1', 'lr: fast'],
    refused: 'job.yaml:16:3: optimizer.lr: expected a number above 0 to 1000000, got "fast"',
  },
  {
    change: ['lr: 0.1', "lr: '0.1'"],
    refused: 'job.yaml:16:3: optimizer.lr: expected a number above 0 to 1000000, got "0.1"; write it without quotes',
  },
  {
    change: ['lr: 0.1', 'lr: .inf'],
    refused: 'job.yaml:16:3: optimizer.lr: expected a number above 0 to 1000000, got Infinity',
  },
  {
    change: ['lr: 0.1', 'lr: .nan'],
    refused: 'job.yaml:16:3: optimizer.lr: expected a number above 0 to 1000000, got NaN',
  },
  {
    change: ['  lr: 0.1\n', ''],
    refused: 'job.yaml:14:1: optimizer.lr: expected a number above 0 to 1000000, got nothing',
  },
  {
    change: ['lr: 0.1', 'learning_rate: 0.1'],
    refused: 'job.yaml:16:3: optimizer.learning_rate: expected a known field, got "learning_rate"; write `lr`',
  },
  {
    change: ['momentum: 0.9', 'momentum: 1'],
    refused: 'job.yaml:17:3: optimizer.momentum: expected a number from 0 to below 1, got 1',
  },
  {
    change: ['momentum: 0.9', 'momentun: 0.9'],
    refused: 'job.yaml:17:3: optimizer.momentun: expected a known field, got "momentun"; did you mean `momentum`?',
  },
  {
    change: ['momentum: 0.9', 'weight_decay: 0.1'],
    refused:
      'job.yaml:17:3: optimizer.weight_decay: expected a known field, got "weight_decay"; did you mean `weightDecay`?',
  },
  {
    change: ['momentum: 0.9', 'nesterov: on'],
    refused: 'job.yaml:17:3: optimizer.nesterov: expected true or false, got "on"; write true or false',
  },
  {
    change: ['momentum: 0.9', 'decay: none'],
    refused: 'job.yaml:17:3: optimizer.decay: expected one of all, matrices, got "none"',
  },
  {
    change: ['momentum: 0.9', 'schedule: cosine'],
    refused: 'job.yaml:17:3: optimizer.schedule: expected an object, got "cosine"',
  },
  {
    change: ['momentum: 0.9', 'schedule: { type: cosin, to: 0 }'],
    refused:
      'job.yaml:17:15: optimizer.schedule.type: expected one of linear, cosine, got "cosin"; did you mean `cosine`?',
  },
  {
    change: ['momentum: 0.9', 'schedule: { type: cosine }'],
    refused: 'job.yaml:17:3: optimizer.schedule.to: expected a number from 0 to 1, got nothing',
  },
  {
    change: ['momentum: 0.9', 'schedule: { type: cosine, to: 2 }'],
    refused: 'job.yaml:17:29: optimizer.schedule.to: expected a number from 0 to 1, got 2',
  },
  {
    change: ['momentum: 0.9', 'schedule: { type: cosine, to: 0, steps: 10, warmup: 11 }'],
    refused: 'job.yaml:17:47: optimizer.schedule.warmup: expected a whole number from 0 to 10, got 11',
  },
  {
    change: ['type: sgd\n  lr: 0.1\n  momentum: 0.9', 'type: adamw\n  lr: 0.1\n  betas: [0.9]'],
    refused: 'job.yaml:17:3: optimizer.betas: expected a list of 2 values, got [0.9]',
  },
  {
    change: ['type: sgd\n  lr: 0.1\n  momentum: 0.9', 'type: adamw\n  lr: 0.1\n  betas: [0.9, 1]'],
    refused: 'job.yaml:17:16: optimizer.betas[1]: expected a number from 0 to below 1, got 1',
  },
  {
    change: ['type: flatten', 'type: flaten'],
    refused:
      'job.yaml:9:7: model.layers[0].type: expected one of ' + LAYERS + ', got "flaten"; did you mean `flatten`?',
  },
  {
    change: ['type: flatten', 'kind: flatten'],
    refused: 'job.yaml:9:7: model.layers[0].type: expected one of ' + LAYERS + ', got nothing',
  },
  {
    change: ['- type: flatten', '- flatten'],
    refused: 'job.yaml:9:7: model.layers[0]: expected an object, got "flatten"',
  },
  {
    change: ['out: 10', 'out: ten'],
    refused: 'job.yaml:10:34: model.layers[1].out: expected a whole number from 1 to 16777216, got "ten"',
  },
  {
    change: ['out: 10', 'outt: 10'],
    refused:
      'job.yaml:10:7: model.layers[1].out: expected a whole number from 1 to 16777216, got nothing\n' +
      'job.yaml:10:34: model.layers[1].outt: expected a known attribute, got "outt"; did you mean `out`?',
  },
  { change: ['out: 10', 'out: 10, in: 100'], refused: 'job.yaml:10:7: model.layers[1]: expected 100 inputs, got 784' },
  {
    change: ['out: 10', 'out: 10, bias: no'],
    refused: 'job.yaml:10:43: model.layers[1].bias: expected true or false, got "no"; write true or false',
  },
  {
    change: ['name: fc1', "name: '<b>'"],
    refused:
      'job.yaml:10:23: model.layers[1].name: expected a dotted name of at most 100 characters, such as "fc1", got ' +
      '"<b>"',
  },
  {
    change: ['type: linear, name: fc1, out: 10', 'type: maxpool2d, kernel: 2'],
    refused: 'job.yaml:10:7: model.layers[1]: expected an image (channels, height, width), got the shape [784]',
  },
  {
    change: ['type: flatten', 'type: residual'],
    refused: 'job.yaml:9:7: model.layers[0]: expected a list of at most 1024 layers in its `layers`, got nothing',
  },
  {
    change: ['type: flatten', '{ type: parallel, branches: [[{ type: relu }], [{ type: relu }, { type: rely }]] }'],
    refused:
      'job.yaml:9:73: model.layers[0].branches[1][1].type: expected one of ' +
      LAYERS +
      ', got "rely"; did you mean `relu`?',
  },
  {
    change: ['input: [1, 28, 28]', 'input: 784'],
    refused: 'job.yaml:7:3: model.input: expected a list of 1 to 8 entries, got 784',
  },
  {
    change: ['input: [1, 28, 28]', 'input: [1, 0, 28]'],
    refused: 'job.yaml:7:3: model.input: expected whole sizes with a product of at most 67108864, got [1,0,28]',
  },
  {
    change: ['input: [1, 28, 28]', 'inputs: [1, 28, 28]'],
    refused:
      'job.yaml:5:1: model.input: expected a list of 1 to 8 entries, got nothing\n' +
      'job.yaml:7:3: model.inputs: expected a known attribute, got "inputs"; did you mean `input`?',
  },
  {
    change: ['loss: cross_entropy', 'loss: crossentropy'],
    refused:
      'job.yaml:11:3: model.loss: expected one of cross_entropy, mse, bce_with_logits, got "crossentropy"; did you ' +
      'mean `cross_entropy`?',
  },
  {
    change: ['loss: cross_entropy', 'loss: mse\n  label_smoothing: 0.1'],
    refused: 'job.yaml:12:3: model.label_smoothing: expected a known attribute, got "label_smoothing"',
  },
  {
    change: ['loss: cross_entropy', 'ignore_index: x'],
    refused: 'job.yaml:11:3: model.ignore_index: expected a whole number, got "x"',
  },
  {
    change: [STOP, `${STOP}\nencoding: f8`],
    refused: 'job.yaml:21:1: encoding: expected one of f32, f16, int8, sparse2, auto, got "f8"',
  },
  {
    change: [STOP, `${STOP}\nprecision: bf16`],
    refused: 'job.yaml:21:1: precision: expected one of f32, f16, got "bf16"; did you mean `f16`?',
  },
  {
    change: [STOP, `${STOP}\nexchange: rign`],
    refused: 'job.yaml:21:1: exchange: expected one of auto, ring, direct, got "rign"; did you mean `ring`?',
  },
  {
    change: [STOP, `${STOP}\nclipNorm: 0`],
    refused: 'job.yaml:21:1: clipNorm: expected a number above 0 to 1000000, got 0',
  },
  {
    change: [STOP, `${STOP}\nlocal: { innerSteps: 0 }`],
    refused: 'job.yaml:21:10: local.innerSteps: expected a whole number from 1 to 1000, got 0',
  },
  {
    change: [STOP, `${STOP}\nlocal: { inerSteps: 4 }`],
    refused: 'job.yaml:21:10: local.inerSteps: expected a known field, got "inerSteps"; did you mean `innerSteps`?',
  },
  {
    change: [STOP, `${STOP}\nasync: { proportion: 1.5 }`],
    refused:
      'job.yaml:21:10: async.proportion: expected a number above 0 to 1, or a whole number from 2 to 256, got 1.5',
  },
  {
    change: [STOP, `${STOP}\nasync: { whenStale: later }`],
    refused: 'job.yaml:21:10: async.whenStale: expected one of drop, wait, got "later"',
  },
  {
    change: [STOP, `${STOP}\nstop: { epochs: 3 }`],
    refused: 'job.yaml:21:1: expected YAML or JSON, got what cannot be read: Map keys must be unique',
  },
  {
    change: [STOP, 'stop: *two'],
    refused:
      'expected aliases of values before them, of at most 100 values in all, in job.yaml, got: Unresolved alias (the ' +
      'anchor must be set before the alias): two',
  },
  {
    change: [STOP, 'stop: !!set 2'],
    refused: 'job.yaml:20:7: expected YAML or JSON, got what cannot be read: Unresolved tag: tag:yaml.org,2002:set',
  },
  {
    change: ['seed: 1', ' seed: 1'],
    refused:
      'job.yaml:21:1: expected YAML or JSON, got what cannot be read: All mapping items must start at the same column',
  },
  {
    change: ['seed: 1', '\tseed: 1'],
    refused: 'job.yaml:21:1: expected YAML or JSON, got what cannot be read: Tabs are not allowed as indentation',
  },
  {
    change: ['seed: 1', 'seed: 1\n---\nname: another'],
    refused: 'expected one document in job.yaml, got 2; keep one',
  },
  {
    change: ['seed: 1', 'seed: 1\nrequires: { realGpu: maybe }'],
    refused: 'job.yaml:22:13: requires.realGpu: expected true or false, got "maybe"',
  },
  {
    change: ['seed: 1', 'seed: 1\nrequires: { f16: 1 }'],
    refused: 'job.yaml:22:13: requires.f16: expected true or false, got 1',
  },
  {
    change: ['seed: 1', 'seed: 1\nrequires: { memory: 8GB }'],
    refused: 'job.yaml:22:13: requires.memory: expected a number above 0 to 10000, got "8GB"',
  },
  {
    change: ['seed: 1', 'seed: 1\nrequires: { realgpu: true }'],
    refused: 'job.yaml:22:13: requires.realgpu: expected a known field, got "realgpu"; did you mean `realGpu`?',
  },
  {
    change: ['seed: 1', 'seed: 1\nrequire: { memory: 8 }'],
    refused: 'job.yaml:22:1: require: expected a known field, got "require"; did you mean `requires`?',
  },
  { change: '', refused: 'job.yaml:1:1: expected an object, got null' },
  { change: '[]', refused: 'job.yaml:1:1: expected an object, got []' },
  { change: 'just text', refused: 'job.yaml:1:1: expected an object, got "just text"' },
  {
    change: '{"name": "Digits",',
    refused: 'job.yaml:1:19: expected YAML or JSON, got what cannot be read: Flow map must end with a }',
  },
]
