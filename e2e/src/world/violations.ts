// Collects broken invariants; a simulation stops at the first.

/**
 * The invariants of docs/RULES.md:
 * - replay: the journal rebuilds what the coordinator has to remember (R1);
 * - epoch: an epoch is complete before a block of the next is on the chain (R13);
 * - lost-work: a rewind, or a parameter server that stops, gives up only versions that can be had from no reachable
 *   member, neither by its upload nor over a link (R3, R6, A6, R17-stranded), except a version that one member vouches
 *   for when A5 needs two;
 * - one-voice: a step that one member made up is no target while another holds the committed version (R5);
 * - newcomer: a ballot of members that worked takes in no newcomer that proved nothing (R2);
 * - appended: data that an owner appends is in each epoch from one that has not begun on, behind what was there (R13);
 * - scaling: batch and rate of a record are those of the number of members that made it (R12);
 * - refusal: an honest member is never told that it sent a message that honest members do not send.
 */
export type Invariant =
  | 'I1'
  | 'I2'
  | 'I3'
  | 'I4'
  | 'I5'
  | 'I6'
  | 'I7'
  | 'I8'
  | 'I9'
  | 'replay'
  | 'epoch'
  | 'lost-work'
  | 'one-voice'
  | 'refusal'
  | 'newcomer'
  | 'appended'
  | 'scaling'

export interface Violation {
  readonly invariant: Invariant
  readonly text: string
}

export class Violations {
  first: Violation | undefined
  readonly #ignored: ReadonlySet<Invariant>

  constructor(ignored: ReadonlySet<Invariant>) {
    this.#ignored = ignored
  }

  report(invariant: Invariant, text: string): void {
    if (!this.#ignored.has(invariant)) this.first ??= { invariant, text }
  }
}
