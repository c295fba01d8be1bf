import { fstatSync, mkdirSync, renameSync, rmdirSync, statSync } from 'node:fs'
import pino from 'pino'

export type LogFileLimits = {
  /** A file of this size is rotated: it is renamed to a number, and a new file is started. */
  readonly bytesMax: number
  /** How many rotated files are kept. `.1` is the newest. */
  readonly filesMax: number
}

export type LogFile = { write(line: string): void; flush(): void }

/** Adds the open file descriptor, which pino's types omit. */
type Sink = ReturnType<typeof pino.destination> & { readonly fd: number }

const checksPerFile = 64
const rotatingMsMax = 60_000

/**
 * A log file that several processes append to, with a bounded size. The first process that finds it full rotates it. The others
 * notice at their next check that the path now names another file, and reopen it. No line is lost: lines written in between go to
 * the rotated file.
 */
export function openLogFile(path: string, { bytesMax, filesMax }: LogFileLimits): LogFile {
  const sink = pino.destination({ dest: path, sync: false, mode: 0o600 }) as Sink
  let isOpening = true
  const opened = () => {
    isOpening = false
  }
  sink.on('ready', opened)
  // A full disk or a deleted folder: drop the line and carry on. Without a listener the error event would end the process.
  sink.on('error', opened)
  const checkBytes = bytesMax / checksPerFile
  let uncheckedBytes = 0
  return {
    write(line) {
      sink.write(line)
      uncheckedBytes += line.length
      if (uncheckedBytes < checkBytes) return
      uncheckedBytes = 0
      try {
        if (isFull(path, bytesMax)) rotate(path, bytesMax, filesMax)
        if (isOpening || isSame(path, sink.fd)) return
        isOpening = true
        sink.reopen()
      } catch {
        // If the file cannot be checked, it keeps growing: logging must not fail the caller.
      }
    },
    flush: () => sink.flush(),
  }
}

function isFull(path: string, bytesMax: number): boolean {
  return (statSync(path, { throwIfNoEntry: false })?.size ?? 0) >= bytesMax
}

function isSame(path: string, fd: number): boolean {
  return statSync(path, { throwIfNoEntry: false })?.ino === fstatSync(fd).ino
}

/** One process at a time: a second concurrent rotation would rotate the new file too, and drop an old file for it. */
function rotate(path: string, bytesMax: number, filesMax: number): void {
  const lock = `${path}.rotating`
  try {
    mkdirSync(lock)
  } catch {
    // Another process is rotating. A lock that is too old belongs to a process that died: remove it.
    if (Date.now() - (statSync(lock, { throwIfNoEntry: false })?.mtimeMs ?? Number.NaN) > rotatingMsMax) remove(lock)
    return
  }
  try {
    if (!isFull(path, bytesMax)) return
    for (let number = filesMax - 1; number >= 1; number -= 1) rename(`${path}.${number}`, `${path}.${number + 1}`)
    rename(path, `${path}.1`)
  } finally {
    remove(lock)
  }
}

function rename(from: string, to: string): void {
  try {
    renameSync(from, to)
  } catch {
    // The file does not exist, or the folder is read-only. Then the log file keeps growing, and no line is lost.
  }
}

function remove(folder: string): void {
  try {
    rmdirSync(folder)
  } catch {
    // Another process has already removed it.
  }
}
