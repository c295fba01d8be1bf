import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { fileURLToPath } from 'node:url'

// Long runs leave a note of what they did below docs/proof/, which docs/proof.md cites. Short forms leave none.

const folder = fileURLToPath(new URL('../../docs/proof/', import.meta.url))

export type Facts = Readonly<Record<string, unknown>>

/** Writes the results of a run, also while it runs: each note replaces the one before. */
export function recordProof(name: string, facts: Facts): void {
  mkdirSync(folder, { recursive: true })
  const note = {
    run: name,
    date: new Date().toISOString(),
    machine: `${cpus().length} × ${cpus()[0]?.model ?? process.arch}, ${process.platform}-${process.arch}`,
    node: process.version,
    ...facts,
  }
  writeFileSync(`${folder}${name}.json`, `${JSON.stringify(note, null, 2)}\n`)
}

/** The last note; undefined if there is none. */
export function readProof<Note extends Facts>(name: string): Note | undefined {
  try {
    return JSON.parse(readFileSync(`${folder}${name}.json`, 'utf8')) as Note
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** Prints a progress line with the rate after each of `lines` equal parts, for unattended runs. */
export function progressLines(what: string, total: number, lines = 50): (done: number) => void {
  const startedMs = performance.now()
  const every = Math.max(1, Math.floor(total / lines))
  let told = 0
  return (done) => {
    if (done < told + every) return
    told = done - (done % every)
    const seconds = (performance.now() - startedMs) / 1000
    const left = Math.round(((total - done) * seconds) / done / 60)
    console.log(`${done} of ${total} ${what}, ${Math.round(done / seconds)} a second, about ${left} minutes left`)
  }
}
