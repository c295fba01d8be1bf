import { createWriteStream } from 'node:fs'
import { rm } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { CommandError } from './command.ts'

const expectedCodes = ['ENOENT', 'EACCES', 'EISDIR', 'ENOSPC', 'EDQUOT', 'EROFS', 'ENOTDIR']

/** Writes a file that only its owner can read. Refuses to overwrite a file; removes its own when it cannot be written completely. */
export async function writeNewFile(text: Readable, file: string): Promise<void> {
  let isOurs = false
  const target = createWriteStream(file, { flags: 'wx', mode: 0o600, flush: true }).once('open', () => (isOurs = true))
  try {
    await pipeline(text, target)
  } catch (error) {
    if (isOurs) await rm(file, { force: true })
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'EEXIST') throw new CommandError(`${file} already exists. Name a new file.`)
    if (code !== undefined && expectedCodes.includes(code)) {
      throw new CommandError(`${file} cannot be written: ${message}.`)
    }
    throw error
  }
}

/** A reader that closes the pipe early, as `head` does, is not an error. */
export async function writeToStandardOutput(text: Readable): Promise<void> {
  try {
    await pipeline(text, process.stdout, { end: false })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPIPE') throw error
  }
}
