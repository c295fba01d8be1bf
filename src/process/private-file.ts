import { renameSync, rmSync, writeFileSync } from 'node:fs'

/** Writes a file atomically, readable by its owner alone: for files that hold a key or a password. */
export function writePrivateFile(path: string, text: string): void {
  // Delete a leftover from an interrupted write: an existing file would keep its mode.
  rmSync(`${path}.new`, { force: true })
  writeFileSync(`${path}.new`, text, { mode: 0o600, flag: 'wx' })
  renameSync(`${path}.new`, path)
}
