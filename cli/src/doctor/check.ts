// What a check of this machine finds, for people and for `--json`.

export interface CheckResult {
  readonly name: string
  /** a warning is worth knowing, with a failure something will not work */
  readonly state: 'ok' | 'warning' | 'failure'
  /** what was found */
  readonly detail: string
  /** what to do about it; null where nothing is to be done */
  readonly cure: string | null
}

export const ok = (name: string, detail: string): CheckResult => ({ name, state: 'ok', detail, cure: null })
export const warning = (name: string, detail: string, cure: string): CheckResult => ({
  name,
  state: 'warning',
  detail,
  cure,
})
export const failure = (name: string, detail: string, cure: string): CheckResult => ({
  name,
  state: 'failure',
  detail,
  cure,
})
