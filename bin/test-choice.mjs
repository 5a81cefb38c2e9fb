// What `npm test` leaves to `npm run test:all`: files that take long and whose promise a quicker one keeps, by name →
// who keeps it. Every promise of the README stays in `npm test`, in real processes and a real browser.
export const LATER = {
  'train-goes-on':
    'coordinator-restarts.test.ts kills and restarts a coordinator, command-line.test.ts goes on with a job file',
  'job-command':
    'who-may-read.test.ts has the routes behind it, connection.test.ts tokens and names, command-line.test.ts its help',
  'a-restart-costs-no-volunteer': 'coordinator-restarts.test.ts restarts a coordinator under volunteers',
  'a-damaged-shard-costs-no-volunteer':
    'damaged-files.test.ts has what a look at the disk finds, run-quarantine.test.ts what follows',
  'moves-to-another-storage':
    'journal-in-postgres.test.ts and blobs-in-s3.test.ts have what each store promises, copies among them',
  'a-coordinator-gives-its-jobs-away':
    'owner-book.test.ts has who owns a job, another-coordinator-takes-over.test.ts kills its owner',
  'a-tab-follows-its-job':
    'another-coordinator-takes-over.test.ts has what a job is after a move, dashboard.test.ts its page',
  'trains-between-two-nats':
    'ice-servers.test.ts has the credentials of TURN, relays-a-pair-that-cannot-link.test.ts the relay',
  image: 'deploy.test.ts reads the Containerfile and looks up what it names',
  operator: 'reconcile.test.ts has every decision of it',
  growth: 'snapshot.test.ts and chain-index.test.ts count what thousands of steps keep',
  'simulation-misses-each-rule':
    'production-survives-faults-on-virtual-time.test.ts runs a thousand seeds with all rules on',
  'golden-trainings': 'golden.test.ts trains LeNet and small decoders as PyTorch does, and has every operator',
  'golden-adapters': 'golden.test.ts compares with PyTorch on one adapter',
  'a-member-that-hangs-is-left-out':
    'run-stalls.test.ts has who is named; a-member-dies-anywhere-in-a-step.test.ts a real ring',
  'kernel-variants':
    'golden.test.ts compares all operators with PyTorch, by the kernels of this adapter and by those of a GPU',
  'workgroup-kernels': 'golden.test.ts has each operator by the kernels of software adapters, and all as for a GPU',
  'matrix-products': 'matrix-units.test.ts shows their texts to Dawn, golden.test.ts has the products of linear layers',
  'gpu-compilers':
    'gpu-plan.test.ts has which kernels GPUs are given, and that where registers are few none keeps 8 × 8 results',
  'gpu-executor': 'golden.test.ts compares whole trainings and each operator with PyTorch',
  'mirrored-gpus':
    'mirrored-executor.test.ts has the sums of several devices and what follows when one fails, ' +
    'gpu-seats.test.ts which adapters are meant',
  'several-gpus-are-one-member':
    'mirrored-executor.test.ts has that they compute what one computes, gpu-seats.test.ts which adapters are meant',
  'a-rack-is-one-member': 'rack.test.ts lends machines over real sockets, loses one in a step and takes it back',
  resnet: 'golden.test.ts has its operators, model.test.ts its parameters',
  collectives: 'communicator.test.ts has every collective over links in memory',
  'peer-links': 'browser-meets-node.test.ts trains over real links between a tab and a process',
  'ring-death-matrix':
    'production-survives-faults-on-virtual-time.test.ts and a-member-dies-anywhere-in-a-step.test.ts kill members',
  'trains-with-a-direct-exchange':
    'chooses-the-direct-exchange-over-long-lines.test.ts trains in one, direct-reduce.test.ts has its sums',
  'trains-with-encoded-gradients': 'ring-encodings.test.ts has what members hold and what the loss does',
  'trains-with-losses-of-values': 'batch.test.ts and datasets.test.ts have the targets, golden.test.ts the losses',
  'trains-in-half-precision':
    'what-ends-a-volunteer.test.ts leaves a job with that code, half.test.ts has which values are stored in f16',
  'trains-in-local-rounds': 'local-round.test.ts has what a round is and what interrupts it',
  'kills-a-group': 'trains-in-groups.test.ts kills a member in real processes, run-groups.test.ts has whole rounds',
  'mends-a-partition':
    'relays-a-pair-that-cannot-link.test.ts relays in real processes, run-links.test.ts has the way back',
  'appended-data-joins-the-next-epoch':
    'run-appended.test.ts has which epochs train it, over restarts; named-datasets.test.ts what the command appends',
  'the-batch-follows-the-ring': 'run-weak-scaling.test.ts has which batch and rate each step has, and its records',
  'audits-now-and-then': 'step-audit.test.ts finds an old gradient, step-sums.test.ts has which sums are believed',
  'names-who-sends-wrong-sums':
    'refuses-hostile-frames.test.ts names senders in real processes, run-ring.test.ts those of wrong sums',
  'a-member-without-links-works-off-the-ring':
    'run-off-ring.test.ts and off-ring-sums.test.ts have what off-ring members bring',
  'a-volunteer-comes-back-warm':
    'kept-state.test.ts has what is kept, run-ballot.test.ts what a returning member is told',
  'a-stopped-newcomer-costs-nothing': 'run-learners.test.ts and run-admissions.test.ts have what no ballot opens for',
  'a-newcomer-fetches-from-members': 'state-fetch.test.ts has which members it asks and what it believes',
  'a-straggler-gives-blocks-away':
    'run-rebalance.test.ts and assignment.test.ts have which blocks move between which members',
  'a-volunteer-leaves-between-steps': 'a-closing-tab-leaves-gracefully.test.ts leaves a real ring',
  'a-restored-backup-goes-on':
    'run-restored.test.ts has the numbers and claims, production-survives-faults-on-virtual-time.test.ts runs ' +
    'after it, member.test.ts the answers',
  'a-hung-thread-is-given-up':
    'parameter-server.test.ts gives such a thread up, async-server.test.ts goes on after a server that failed',
  'one-voice-is-not-enough':
    'run-agreement.test.ts, run-async.test.ts and run-links.test.ts have what is decided about liars',
  'a-sleeper-comes-back': 'link-set.test.ts and run-ballot.test.ts have the two sides of a silence',
  'a-hidden-tab-gets-half': 'run-ring.test.ts and run-async.test.ts have the shares and leases of hidden tabs',
  'learns-a-text': 'golden.test.ts trains decoders as PyTorch does, windows.test.ts and text.test.ts have the data',
  'begins-with-given-parameters':
    'begins-with-parameters.test.ts has what members are served, start.test.ts what is taken of a file',
  'examples-reach-their-quality':
    'named-datasets.test.ts and datasets.test.ts have the datasets, golden.test.ts compares losses with PyTorch',
  'plan-properties': 'plan.test.ts plans jobs with the command, and compares a forecast with the formula',
  'plan-of-jobs': 'plan.test.ts plans two jobs with the command, one of them with another batch',
  'https-next-steps':
    'https.test.ts trains from another machine through the door, and has what is printed for other machines',
  compile: 'runtime.test.ts and command-line.test.ts run what was compiled, each test file does',
  'links-node-members-over-tcp':
    'tcp-link.test.ts has links over TCP and doors.test.ts who dials; demo-trains-digits.test.ts trains ' + 'over them',
  'keep-command': 'keep.test.ts has which checkpoints stay, keeps-checkpoints.test.ts their bytes and exports',
  'two-jobs-share-three-volunteers':
    'schedule.test.ts has which job gets volunteers, goes-on-to-the-next-job.test.ts moves a real one between two',
  'an-example-tunes-a-chat':
    'members-tune-a-model-together.test.ts trains adapters in processes and a tab, and ' +
    'published-models.test.ts has the examples',
  'fake-devices': 'renewed-executor.test.ts has what follows the loss of a device, pace.test.ts how long submits are',
  'large-vocabulary': 'vocabulary.test.ts has what is cut into what, and the plain reference in pieces and in one',
  'gpt2-shape': 'vocabulary.test.ts plans models above the limits, and runs small ones in pieces',
  'gpu-sequence': 'golden.test.ts has each operator, and trains decoders as PyTorch does',
  'gpu-language': 'members-tune-a-model-together.test.ts tunes adapters on this adapter and in a tab',
  'take-over': 'another-coordinator-takes-over.test.ts kills one, coordinator-restarts.test.ts starts it again',
  'deletes-jobs': 'ended-jobs.test.ts has what stays of a job, the suites of both stores what they delete',
  'killed-twice': 'coordinator-restarts.test.ts kills a coordinator under real volunteers',
  'launch-hosts': 'launch.test.ts starts two ranks, communicator.test.ts has what they say to each other',
  'members-pass-the-base-on':
    'base-fetch.test.ts has which members a newcomer asks and believes, introductions.test.ts which may link',
  'a-page-writes-while-a-job-trains':
    'token-decoder.test.ts has what a version writes, dashboard.test.ts the page, browser-meets-node.test.ts a tab',
  'gpu-operators': 'golden.test.ts compares each operator with PyTorch on this adapter, and whole trainings',
  'encodes-over-slow-lines':
    'run-encoding.test.ts has each choice and when it is made, ring-encodings.test.ts what members then send',
  'time-to-quality': 'noise-scale.test.ts has what a crowd learns; how fast is no promise of a test',
  'host-rows': 'update.test.ts has the bits of an update; how fast is no promise of a test',
  'gpu-rows':
    'gpu-plan.test.ts has which kernels GPUs get, golden.test.ts what they compute; how fast is no promise of a test',
  'coordinator-rows':
    'another-coordinator-takes-over.test.ts takes over, coordinator-restarts.test.ts restarts, async-server.test.ts ' +
    'takes pushes; how fast is no promise of a test',
  'several-coordinators':
    'owner-book.test.ts has who owns a job, another-coordinator-takes-over.test.ts kills its owner in a training',
  newcomers:
    'run-admissions.test.ts and run-learners.test.ts have each decision, falls-back-and-returns.test.ts lets one in',
  relay: 'relays-a-pair-that-cannot-link.test.ts relays in real processes, run-links.test.ts has which links',
  'program-over-a-restart':
    'launch.test.ts runs a program of two ranks, command-line.test.ts goes on with a job after a restart',
  'slow-uploads': 'run-agreement.test.ts has which upload is asked for, large-bodies.test.ts what is read meanwhile',
  'journal-rate': 'bounds.test.ts and hostile-sessions.test.ts have what one member may cost',
  drains: 'coordinator-restarts.test.ts goes on after an end, command-line.test.ts stops a coordinator by a signal',
  'invite-command': 'invites.test.ts has what an invite lets in, and how it ends',
  encoding: 'encoded-vector.test.ts has the bytes, large-bodies.test.ts the event loop meanwhile',
  'process-log': 'who-may-read.test.ts has what no answer may hold, command-line.test.ts what a coordinator prints',
  'ends-early': 'run-end.test.ts has each criterion, ends-by-its-target.test.ts ends a real run',
  'convert-command': 'exports.test.ts has every operator in both formats, predict.test.ts reads what is exported',
  'an-outage-costs-no-step': 'coordinator-restarts.test.ts kills a coordinator under volunteers that train',
  'a-session-that-ended-says-nothing':
    'what-ends-a-volunteer.test.ts has what follows a failure, member.test.ts what a halted generation may say',
  'gpu-encoding': 'ring-encodings.test.ts has the bits of each encoding, golden.test.ts the adapter',
  'one-preparation-at-a-time':
    'goes-on-to-the-next-job.test.ts prepares one job after another, several-jobs.test.ts has which is offered',
  'volunteers-protect-themselves': 'own-limits.test.ts has each limit, what-ends-a-volunteer.test.ts the refusals',
  'shard-processes': 'parameter-server.test.ts has its ranges, async-server.test.ts trains with one',
  'a-mute-volunteer-holds-no-place': 'places.test.ts has who loses a place, run-stalls.test.ts who is mute',
  'two-volunteers-train': 'demo-trains-digits.test.ts trains real digits, async-server.test.ts in mode async',
  'token-command': 'tokens.test.ts has what a token may do, connection.test.ts where it is sent',
  downloads: 'state-fetch.test.ts has what a member asks for, who-may-read.test.ts who gets it',
  'gpu-packed': 'packed-plan.test.ts has what is packed where, what it costs, and that it is said',
  'table-formats':
    'named-datasets.test.ts imports with the command, datasets.test.ts and reading-in-a-thread.test.ts have the shards',
  'dashboard-of-a-crowd': 'dashboard.test.ts has the page, with the members of a small ring',
  'golden-in-browser': 'browser-meets-node.test.ts computes in a browser what a process computes',
}

/** Files that keep a core or a clock busy for 20 s and more, the longest first: they begin before all others. */
export const LONGEST_FIRST = [
  'production-survives-faults-on-virtual-time',
  'kernel-variants',
  'workgroup-kernels',
  'gpu-compilers',
  'train-goes-on',
  'demo-trains-digits',
  'launch',
  'predict',
  'trains-with-encoded-gradients',
  'trains-with-a-direct-exchange',
  'several-gpus-are-one-member',
  'falls-back-and-returns',
  'a-member-dies-anywhere-in-a-step',
  'trains-in-local-rounds',
  'a-page-writes-while-a-job-trains',
  'simulation-misses-each-rule',
  'goes-on-to-the-next-job',
  'mirrored-gpus',
  'gpu-executor',
  'refuses-hostile-frames',
  'members-tune-a-model-together',
  'browser-meets-node',
  'peer-links',
  'collectives',
  'what-ends-a-volunteer',
  'a-closing-tab-leaves-gracefully',
  'golden-adapters',
  'another-coordinator-takes-over',
  'a-coordinator-gives-its-jobs-away',
  'a-tab-follows-its-job',
  'a-restart-costs-no-volunteer',
  'coordinator-restarts',
  'mends-a-partition',
  'names-who-sends-wrong-sums',
  'volunteers-protect-themselves',
  'a-volunteer-comes-back-warm',
  'a-newcomer-fetches-from-members',
  'a-straggler-gives-blocks-away',
  'a-member-without-links-works-off-the-ring',
  'a-member-that-hangs-is-left-out',
  'a-damaged-shard-costs-no-volunteer',
  'a-restored-backup-goes-on',
  'ring-death-matrix',
  'learns-a-text',
  'resnet',
  'gpu-operators',
  'gpu-sequence',
  'relays-a-pair-that-cannot-link',
  'https',
  'take-over',
  'chooses-the-direct-exchange-over-long-lines',
  'encodes-over-slow-lines',
  'coordinator-rows',
  'dashboard',
  'contribute',
  'command-line',
  'async-server',
  'encoding',
  'bounded-connections',
  'named-commands',
]
