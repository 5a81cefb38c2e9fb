// The rules of docs/RULES.md that the simulation can switch off one at a time, to show that each is needed and would be
// missed. Production runs with all rules on; only tests build another set.

export const SWITCHABLE_RULES = {
  R1: 'an entry is durable before anything that depends on it is sent',
  R2: 'a restarted coordinator opens a new ballot instead of continuing an old generation',
  'R2-proof': 'a ballot of members that worked takes in a newcomer only after it proved that it holds the state',
  R3: 'a member that answered a freeze stops its ring and drops frames of older generations',
  'R3-equal': 'a freeze with an equal ballot is answered again',
  R4: 'a claim is valid only when its chain has the committed id, not just a number',
  R5: 'what one member alone claims beyond the committed chain is not taken',
  R6: 'a rewind makes undone what it takes off the chain',
  R7: 'a kept reduced gradient is applied only by a member that is still at its parent',
  'R7-source': 'a member serves only the version that it holds whole, in the ballot that it promised',
  'R7-learner': 'a member claims a version only after it has adopted it whole',
  R8: 'a generation starts after all its members confirmed',
  R9: 'a member contributes only after START of the generation that it promised',
  R10: 'parameters change in one piece, after every chunk of the step arrived',
  R12: 'blocks planned in a running generation are not planned again in it',
  'R12-done': 'planned blocks are done only by being on the chain',
  'R12-moves':
    'a block changes its member only after that member gave it up, and manifests that hold a block twice end the step',
  R13: 'the next epoch is planned when all blocks of this one are on the chain',
  R15: 'an upload becomes a checkpoint only when its id is on the chain',
  R16: 'a rewind does not touch the counters',
  R17: 'a member that keeps failing the ring is left out of it, and a ring that keeps failing gives way to async mode',
  A1:
    'blocks that off-ring members computed are in no plan while their sum is on its way into a step of the ring, ' +
    'the one writer',
  A7: 'inner progress of a local round goes on only in an assignment that holds all of it',
  A2: 'a push is taken only with current lease tokens, once',
  A4: 'a parameter server that restarts goes back to its newest checkpoint',
  A5: 'the parameter server starts from the version that the ring decided',
  A6: 'a ring that follows async mode starts from the newest version of the parameter server',
} as const
export type Rule = keyof typeof SWITCHABLE_RULES
export type RulesOff = ReadonlySet<Rule>
export const ALL_RULES_ON: RulesOff = new Set()
