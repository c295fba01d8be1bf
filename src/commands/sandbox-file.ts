import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { writePrivateFile } from '../process/private-file.ts'

/** What a sandbox service stores in its data folder for programs: its address, and an API key with test money. */
export type SandboxFile = {
  /** Ends in /v1. */
  readonly base_url: string
  readonly api_key: string
  readonly dashboard_url: string
  readonly pid: number
}

const file = 'sandbox.json'

export function writeSandboxFile(dataDir: string, content: SandboxFile): void {
  writePrivateFile(join(dataDir, file), `${JSON.stringify(content, null, 2)}\n`)
}

/** The file of the last start on this data folder; undefined when there was none. */
export function readSandboxFile(dataDir: string): SandboxFile | undefined {
  try {
    return JSON.parse(readFileSync(join(dataDir, file), 'utf8')) as SandboxFile
  } catch {
    return undefined
  }
}
