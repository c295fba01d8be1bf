import { renameSync, rmSync, writeFileSync } from 'node:fs'

/** Written whole or not at all, and readable by its owner alone: for files that hold a key or a password. */
export function writePrivateFile(path: string, text: string): void {
  // One that was left half-way keeps the mode it has.
  rmSync(`${path}.new`, { force: true })
  writeFileSync(`${path}.new`, text, { mode: 0o600, flag: 'wx' })
  renameSync(`${path}.new`, path)
}
