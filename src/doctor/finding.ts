/** The result of one check of the installation. */
export type Finding = {
  readonly check: string
  readonly state: 'ok' | 'warning' | 'failed' | 'skipped'
  readonly detail: string
  /** What to do about it. */
  readonly remedy?: string
}

export function ok(check: string, detail: string): Finding {
  return { check, state: 'ok', detail }
}

export function skipped(check: string, detail: string): Finding {
  return { check, state: 'skipped', detail }
}

export function warning(check: string, detail: string, remedy: string): Finding {
  return { check, state: 'warning', detail, remedy }
}

export function failed(check: string, detail: string, remedy: string): Finding {
  return { check, state: 'failed', detail, remedy }
}
