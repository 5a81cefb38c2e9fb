// Collects broken invariants; a simulation stops at the first.

export type Invariant = 'I1' | 'I2' | 'I3' | 'I4' | 'I5' | 'I6' | 'I7' | 'I8' | 'I9' | 'epoch'

export class Violations {
  first: { readonly invariant: Invariant; readonly text: string } | undefined

  report(invariant: Invariant, text: string): void {
    this.first ??= { invariant, text }
  }
}
